"""The version of py_gemm: the one place that pyproject.toml, the package and the page read it from."""

__version__ = "0.1.0"
