"""The CPU road: C kernels compiled to WebAssembly, run on the interpreter's own memory in the browser and in wasmtime outside.

families, blocking, plan, arguments and transfer decide and are pure; engines run; gemm ties both together.
Nothing here needs NumPy.
"""
