"""`verify`: could this result be right? Holds it against the exact product and the bound of correct implementations
(py_gemm.exact).

Never trusts a kernel: the reference is worked out from the operands alone. Reads its arguments, changes none of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import log10, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import arrays
from ..arrays import DeviceArray
from ..call import matrix_shape
from ..dtypes import ElementType, accumulator_type
from ..epilogue import Activation
from ..errors import ShapeError, UnsupportedError
from ..exact import Array, Result
from ..exact.arrays import existing, is_tensor
from ..problem import broadcast, matmul_shapes, real_number
from .reference import Expression, as_exact, magnitude
from .sampling import Sample, choose_sample
from .verdict import Block, Gatherer, Verdict

_WORST = 5


def verify(
    a: Any,
    b: Any,
    result: Any,
    c: Any = None,
    *,
    alpha: float = 1.0,
    beta: float | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    bias: Any = None,
    activation: str | None = None,
    dtype_a: Any = None,
    dtype_b: Any = None,
    dtype_c: Any = None,
    dtype_result: Any = None,
    standard: str = "normal",
    sample: int | None = None,
    seed: int = 0,
) -> Verdict:
    """Whether a correct implementation could have returned `result` for act(alpha * op(a) @ op(b) + beta * c + bias).

    The arguments are those of `gemm`; result: what some implementation returned, of the result's shape and of any float type,
    rounded once from a float32 (float64 operands: float64) accumulator or better; uint16 are bfloat16 bits. DeviceArrays are read;
    arrays of er and PyTorch's tensors are taken, too.
    standard: "normal" (chains, blocks, lanes, ranges: what implementations do) or "any_order" (any bracketing at all).
    sample: rows and columns to look at; None: everything up to 2^27 products, beyond that as many lines as 2^27 products allow.
    They are drawn with `seed`, one from each of equal strata, the first and the last always among them (report/sampling.py).

    Returns a Verdict: truthy where everything looked at is covered; prints as text, shows an error map in notebooks.
    ShapeError, TypeError and ValueError for arguments that do not fit. UnsupportedError for a gelu, whose value no bound of sums
    covers, and for a bias together with c where alpha is not a power of two.
    """
    factors = real_number("verify", "alpha", alpha), None if beta is None else real_number("verify", "beta", beta)
    product = _Product.of(
        _read("a", a, dtype_a), _read("b", b, dtype_b), None if c is None or beta == 0.0 else _read("c", c, dtype_c),
        _read("result", result, dtype_result), bias, *factors, transpose_a, transpose_b, Activation.of(activation),
    )  # fmt: skip
    chosen = choose_sample(prod(product.batch), product.m, product.n, product.k, sample, seed)
    gatherer = Gatherer(product.shape, product.m, product.n, _WORST)
    for place, item in enumerate(chosen.items):
        index = tuple(int(each) for each in np.unravel_index(item, product.batch)) if product.batch else ()
        for rows, columns in _blocks(chosen, product.m, product.n):
            if len(rows) and len(columns):
                gatherer.add(product.judge(index, rows, columns, standard), paint=place == 0)
    digits = product.type_result.significand_bits * log10(2)
    return gatherer.verdict(
        product.type_result.name, standard, chosen, digits, product.drops, lambda index: product.margin(index, standard)
    )


async def verify_async(a: Any, b: Any, result: Any, c: Any = None, **options: Any) -> Verdict:
    """`verify`, awaitable: DeviceArrays are read where Python cannot wait for a GPU. The same arguments."""
    tags = {"dtype_a": a, "dtype_b": b, "dtype_c": c, "dtype_result": result}
    for name, value in tags.items():
        if isinstance(value, DeviceArray) and value.bits:
            options[name] = "bfloat16"
    a, b, result, c = [await each.numpy_async() if isinstance(each, DeviceArray) else each for each in (a, b, result, c)]
    return verify(a, b, result, c, **options)


_Typed = tuple[NDArray[Any], ElementType]


def _read(name: str, value: Any, tag: Any) -> _Typed:
    if isinstance(value, (Array, Result)) or is_tensor(value):
        found = existing(value)
        array = value.__array__() if found is None else found.numpy()  # of a result with several outputs: TypeError
        tag = "bfloat16" if found is not None and found.dtype == "bfloat16" else tag
    else:
        array = value.numpy() if isinstance(value, DeviceArray) else np.asarray(value)
    if array.ndim == 0 and name in ("a", "b"):
        raise ShapeError(f"verify: {name} has no dimension (shape ()); at least one is needed")
    if array.dtype == np.uint16 and (name == "result" or isinstance(value, DeviceArray)):
        tag = "bfloat16"
    element = arrays.element_type("verify", name, array.dtype, tag)
    return array.astype(array.dtype.newbyteorder("="), copy=False), element


def _blocks(sample: Sample, m: int, n: int) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Everything, or the rows in full and then the columns without those rows."""
    every_row, every_column = np.arange(m), np.arange(n)
    if sample.rows is None:
        yield every_row, every_column
        return
    rows = np.asarray(sample.rows, np.intp)
    yield rows, every_column
    yield np.setdiff1d(every_row, rows), np.asarray(sample.columns, np.intp)


@dataclass(frozen=True, slots=True)
class _Product:
    """The whole product, operands as full (batch, rows, columns) views, and what can be asked of parts of it."""

    a: NDArray[Any]
    b: NDArray[Any]
    c: NDArray[Any] | None
    bias: NDArray[np.float32] | None
    result: NDArray[Any]
    types: tuple[ElementType, ElementType, ElementType | None]
    type_result: ElementType
    alpha: float
    beta: float
    activation: Activation
    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    shape: tuple[int, ...]
    drops: tuple[bool, bool]

    @staticmethod
    def of(
        a: _Typed, b: _Typed, c: _Typed | None, result: _Typed, bias: Any, alpha: float, beta: float | None, transpose_a: bool,
        transpose_b: bool, activation: Activation,
    ) -> _Product:  # fmt: skip
        """Checks everything against everything."""
        if activation not in (Activation.NONE, Activation.RELU):
            raise UnsupportedError(
                f"verify: no bound of sums covers the activation {activation.name.lower()!r}; verify the product without it"
            )
        (left, type_a), (right, type_b), (found, type_result) = a, b, result
        batch, m, n, k = matmul_shapes(
            "verify",
            matrix_shape(left.shape, left=True, transpose=transpose_a),
            matrix_shape(right.shape, left=False, transpose=transpose_b),
        )
        drops = left.ndim == 1, right.ndim == 1
        shape = (*batch, *(() if drops[0] else (m,)), *(() if drops[1] else (n,)))
        if found.shape != shape:
            raise ShapeError(f"verify: the result has shape {found.shape}, the product {shape}")
        factor = (0.0 if c is None else 1.0) if beta is None else beta
        addend, type_c = (None, None) if c is None else c
        if addend is None and factor != 0.0:
            raise ValueError(f"verify: beta is {factor}, but there is no c")
        if addend is not None:
            if broadcast("verify", "c", addend.shape, shape, (addend.shape, shape)) != shape:
                raise ShapeError(f"verify: c of shape {addend.shape} does not broadcast to the result's shape {shape}")
            addend = np.broadcast_to(addend, shape).reshape(*batch, m, n)
        row = None
        if bias is not None:
            row = arrays.widen(*_read("bias", bias, None), np.float32)
            if row.shape != (n,):
                raise ShapeError(f"verify: bias has shape {row.shape}, dimension n needs ({n},)")
        return _Product(
            _full(left, transpose_a, (*batch, m, k), left=True), _full(right, transpose_b, (*batch, k, n), left=False), addend, row,
            found.reshape(*batch, m, n), (type_a, type_b, type_c), type_result, alpha, factor, activation, batch, m, n, k, shape,
            drops,
        )  # fmt: skip

    def part(self, item: tuple[int, ...], rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Expression:
        type_a, type_b, type_c = self.types
        c = None if self.c is None or type_c is None else (self.c[item][np.ix_(rows, columns)], type_c)
        return Expression(
            (self.a[item][rows], type_a), (self.b[item][:, columns], type_b), c,
            None if self.bias is None else self.bias[columns], self.alpha, self.beta, self.type_result,
        )  # fmt: skip

    def judge(self, item: tuple[int, ...], rows: NDArray[np.intp], columns: NDArray[np.intp], standard: str) -> Block:
        """Everything about one block but its margins."""
        expression = self.part(item, rows, columns)
        exact = expression.result()
        given = as_exact(self.result[item][np.ix_(rows, columns)], self.type_result)
        values, rounded = given.values, exact.rounded.values
        covered = exact.covers(given, standard)
        if self.activation is Activation.RELU:
            # relu and rounding may change places. A zero is right where the sum may be zero or less; a negative number never is.
            covered = np.where(values < 0, False, np.where((values == 0) & (rounded <= 0), True, covered))
            rounded = np.where(rounded <= 0, 0.0, rounded)
        last_place = unit_in_the_last_place(rounded, self.type_result)
        unit = 2.0 ** -accumulator_type(*self.types[:2]).significand_bits
        with np.errstate(invalid="ignore", over="ignore"):
            apart = np.abs(values - rounded)
            same = (values == rounded) | (np.isnan(values) & np.isnan(rounded))
            ulps, roundings = apart / last_place, apart / (unit * magnitude(expression) + last_place / 2)
        ulps, roundings = (np.where(same, 0.0, np.where(np.isnan(each), np.inf, each)) for each in (ulps, roundings))
        return Block(item, rows, columns, values, rounded, ulps, roundings, covered)

    def margin(self, index: tuple[int, ...], standard: str) -> float:
        """How far out one element is, in units of the bound."""
        *item, row, column = index
        exact = self.part(tuple(item), np.asarray([row]), np.asarray([column])).result()
        given = as_exact(self.result[index].reshape(1, 1), self.type_result)
        found = float(exact.margin(given, standard)[0, 0])
        if self.activation is Activation.RELU and given.values[0, 0] < 0:
            return float("inf")
        return found


def _full(array: NDArray[Any], transpose: bool, shape: tuple[int, ...], *, left: bool) -> NDArray[Any]:
    if array.ndim == 1:
        array = array[None, :] if left else array[:, None]
    elif transpose:
        array = np.swapaxes(array, -1, -2)
    return np.broadcast_to(array, shape)


def unit_in_the_last_place(values: NDArray[np.float64], element: ElementType) -> NDArray[np.float64]:
    """Of each finite value in the format; below its normal range, and of zero, the smallest subnormal number."""
    lowest = 2 - (1 << (element.exponent_bits - 1))  # exponent of the smallest normal number
    _, exponent = np.frexp(values)
    exponent = np.where(values == 0, lowest, exponent - 1)
    unit: NDArray[np.float64] = np.ldexp(1.0, np.maximum(exponent, lowest) - element.significand_bits + 1)
    return unit
