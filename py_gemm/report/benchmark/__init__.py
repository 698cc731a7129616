"""The benchmark behind `py_gemm.bench`: products, contenders, an interleaved clock, goals, and how the figures are shown.

It runs wherever py_gemm runs. Other libraries of a page are handed to it; it installs and fetches nothing.
"""
