"""The correctly rounded GEMM, and whether a result could be right.

import py_gemm.exact as er
r = er.gemm(A, B, C, alpha=0.5, beta=2)   # the exact value of beta * C + alpha * (A @ B)
r.rounded.tolist()                        # rounded once
r.covers(out).all()                       # could a correct implementation have produced `out`?

The public names and nothing else, fetched on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .arrays import Array, asarray
    from .formats import FORMATS, Format
    from .products import gemm, matmul
    from .result import Outputs, Result
    from .rounding import Rounding

__all__ = ["FORMATS", "Array", "Format", "Outputs", "Result", "Rounding", "asarray", "gemm", "matmul"]

_HOMES = {
    ".arrays": ("Array", "asarray"),
    ".formats": ("FORMATS", "Format"),
    ".products": ("gemm", "matmul"),
    ".result": ("Outputs", "Result"),
    ".rounding": ("Rounding",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'py_gemm.exact' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
