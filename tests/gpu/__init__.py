"""Tests of py_gemm/gpu: pure decisions without a device, kernels and devices on wgpu."""
