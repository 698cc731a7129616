"""`npm run kernels`: compiles the C sources in py_gemm/cpu/kernels to the .wasm files that are committed beside them."""

from __future__ import annotations

import runpy

if __name__ == "__main__":
    runpy.run_module("py_gemm.cpu.kernels.build", run_name="__main__", alter_sys=True)
