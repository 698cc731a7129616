"""The GPU road: decisions (capabilities, variants, planner, shaders) apart from devices. Nothing here imports NumPy."""
