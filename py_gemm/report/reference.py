"""The expression of the front door in terms of the exact reference, which knows one added matrix and no bias. Checks nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import frexp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import arrays
from ..dtypes import BFLOAT16, FLOAT64, ElementType, accumulator_type
from ..errors import UnsupportedError
from ..exact import FORMATS, Array, Result, Rounding
from ..exact.expression import make_expression

_Typed = tuple[NDArray[Any], ElementType]


@dataclass(frozen=True, slots=True)
class Expression:
    """alpha * a @ b + beta * c + bias of [m, k], [k, n], [m, n] and [n], rounded to `result`."""

    a: _Typed
    b: _Typed
    c: _Typed | None
    bias: NDArray[np.float32] | None
    alpha: float
    beta: float
    type_result: ElementType

    def result(self) -> Result:
        """The exact product. A bias alone takes C's place. With C it becomes one more step of k, 1 * (bias / alpha), which is exact
        where alpha is a power of two, and the bound grows by that step; UnsupportedError elsewhere."""
        a, b, c = as_exact(*self.a), as_exact(*self.b), None if self.c is None else as_exact(*self.c)
        if self.bias is None:
            return self._exactly(a, b, c, self.alpha, self.beta)
        if c is None:
            rows = np.broadcast_to(self.bias, (a.shape[0], b.shape[1]))
            return self._exactly(a, b, np.ascontiguousarray(rows), self.alpha, 1.0)
        return self._with_c_and_bias(c)

    def _with_c_and_bias(self, c: Array) -> Result:
        assert self.bias is not None
        kind: Any = np.float64 if FLOAT64 in (self.a[1], self.b[1]) else np.float32
        left, right, alpha = wide(*self.a, kind), wide(*self.b, kind), self.alpha
        if alpha == 0.0:  # a and b are not read
            left, right, alpha = left[:, :0], right[:0], 1.0
        with np.errstate(over="ignore", invalid="ignore"):
            step = self.bias.astype(np.float64) / alpha
            narrow = step.astype(kind)
        if abs(frexp(alpha)[0]) != 0.5 or not np.array_equal(narrow.astype(np.float64), step, equal_nan=True):
            raise UnsupportedError(f"verify: c and bias together need an alpha that is a power of two, not {alpha}")
        left = np.concatenate([left, np.ones((len(left), 1), kind)], axis=1)
        right = np.concatenate([right, narrow[None]], axis=0)
        return self._exactly(left, right, c, alpha, self.beta)

    def _exactly(self, a: object, b: object, c: object, alpha: float, beta: float) -> Result:
        """The front door sums in the type that a and b decide, whatever c and the result are."""
        expression = make_expression(
            "verify", a, b, c, alpha=alpha, beta=beta, reduce_batch=False, dtype=self.type_result.name,
            rounding=Rounding.NEAREST_EVEN, overflow=None, engine=None,
        )  # fmt: skip
        return Result(replace(expression, compute=FORMATS[accumulator_type(self.a[1], self.b[1]).name]))


def magnitude(expression: Expression) -> NDArray[np.float64]:
    """About |alpha| |a| @ |b| + |beta c| + |bias|, in float64."""
    a, b = (np.abs(wide(*each, np.float64)) for each in (expression.a, expression.b))
    with np.errstate(invalid="ignore", over="ignore"):
        total: NDArray[np.float64] = abs(expression.alpha) * (a @ b) if expression.alpha else np.zeros((len(a), b.shape[1]))
        if expression.c is not None:
            total = total + abs(expression.beta) * np.abs(wide(*expression.c, np.float64))
        if expression.bias is not None:
            total = total + np.abs(expression.bias.astype(np.float64))
    return total


def wide(array: NDArray[Any], element: ElementType, kind: Any) -> NDArray[Any]:
    """The values as float32 or float64."""
    return arrays.widen(np.ascontiguousarray(array), element, kind)


def as_exact(array: NDArray[Any], element: ElementType) -> Array:
    """An array of the reference with the same elements."""
    dense = np.ascontiguousarray(array)
    if element is BFLOAT16:
        return Array.from_bits(dense.view(np.uint16), "bfloat16")
    return Array(dense, FORMATS[element.name])
