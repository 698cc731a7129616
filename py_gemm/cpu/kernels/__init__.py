"""C sources and the WebAssembly modules built from them. `python -m py_gemm.cpu.kernels.build` builds; nothing here runs them."""
