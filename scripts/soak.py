"""`npm run soak [-- PYTEST ARGUMENTS]`: the tests with PY_GEMM_SOAK=1: every sweep whole instead of a sample. It takes hours."""

from __future__ import annotations

import sys

from .test import run_tests

if __name__ == "__main__":
    sys.exit(run_tests(["--timeout=0", *sys.argv[1:]], {"PY_GEMM_SOAK": "1"}))
