"""The products that are measured, as data, their operands, and the error of a result. Pure but for the random numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Product:
    """m x k times k x n; `transposed`: B is stored n x k. Types as the front door names them."""

    m: int
    n: int
    k: int
    type: str = "float32"
    transposed: bool = False

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k

    @property
    def shape(self) -> str:
        if self.m == self.n == self.k:
            return f"{self.m}³"
        return f"{self.m} × {self.n} × {self.k}" + (", B stored n × k" if self.transposed else "")

    @property
    def label(self) -> str:
        return f"{self.type} {self.shape}"

    @property
    def is_integer(self) -> bool:
        return self.type.endswith("int8")


def cube(size: int, type_name: str = "float32") -> Product:
    """A product of square matrices."""
    return Product(size, size, size, type_name)


def operands(product: Product, seed: int = 0) -> tuple[Array, Array]:
    """A and B: normal numbers, or all values of an integer type. bfloat16 as bits in uint16."""
    source = np.random.default_rng(seed)
    shapes = ((product.m, product.k), (product.n, product.k) if product.transposed else (product.k, product.n))
    if product.is_integer:
        limits = np.iinfo(product.type)
        a, b = (source.integers(limits.min, limits.max, shape, dtype=product.type, endpoint=True) for shape in shapes)
        return a, b
    a, b = (source.standard_normal(shape, np.float32) for shape in shapes)
    if product.type == "bfloat16":
        return _bits(a), _bits(b)
    return a.astype(product.type, copy=False), b.astype(product.type, copy=False)


def _bits(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The upper halves of float32: a bfloat16 rounded toward zero is as good as any here."""
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def wide(values: Array, type_name: str) -> Array:
    """Operands as NumPy takes them: bfloat16 bits become float32."""
    return (values.astype(np.uint32) << 16).view(np.float32) if type_name == "bfloat16" else values


# Rows of the result that are held against float64, evenly spaced, the first and the last among them.
CHECKED_ROWS = 24
_COLUMNS = 4096


class Reference:
    """Some rows of a product: in float64, of float64 in long double, of integers exactly."""

    def __init__(self, product: Product, a: Array, b: Array) -> None:
        self._integer, self._shape = product.is_integer, (product.m, product.n)
        self.rows = np.unique(np.linspace(0, product.m - 1, min(product.m, CHECKED_ROWS)).astype(np.intp))
        kind: Any = np.int64 if product.is_integer else np.longdouble if product.type == "float64" else np.float64
        left = wide(a[self.rows], product.type).astype(kind)
        self.values = np.empty((len(self.rows), product.n), kind)
        for start in range(0, product.n, _COLUMNS):
            part = b[start : start + _COLUMNS].T if product.transposed else b[:, start : start + _COLUMNS]
            self.values[:, start : start + _COLUMNS] = left @ wide(np.ascontiguousarray(part), product.type).astype(kind)

    def error(self, result: Array) -> float:
        """The largest difference over the largest element of the reference, in these rows; of integers 0 or 1: any difference."""
        if result.size != self._shape[0] * self._shape[1]:
            raise ValueError(f"a result of {result.size} elements for a product of {self._shape[0]} x {self._shape[1]}")
        rows = np.reshape(result, self._shape)[self.rows]
        if self._integer:
            return float(not np.array_equal(rows.astype(np.int64), self.values))
        scale = float(np.abs(self.values).max())
        return float(np.abs(rows.astype(self.values.dtype) - self.values).max()) / scale


# The shapes of the tables (m, n, k). One to four rows are steps of a decoder, 128 and more are what an encoder multiplies.
GPU_QUICK: tuple[Product, ...] = (cube(256), Product(1, 768, 768))
GPU_USUAL: tuple[Product, ...] = (
    cube(256), cube(512), cube(256, "float16"),
    Product(128, 768, 768), Product(128, 2304, 768), Product(128, 3072, 768), Product(128, 768, 3072),
    Product(1, 768, 768), Product(1, 3072, 768), Product(1, 768, 3072), Product(4, 3072, 768),
)  # fmt: skip
GPU_FULL: tuple[Product, ...] = (
    *GPU_USUAL, cube(512, "float16"), cube(1024), Product(1024, 768, 3072),
    Product(1, 51865, 768, transposed=True), Product(1, 51865, 768),
)  # fmt: skip
