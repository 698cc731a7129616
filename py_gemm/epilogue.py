"""Bias and activation: what is applied to each element after alpha * product + beta * C. Plain data; the arithmetic lives in
shaders/epilogue.wgsl and cpu/kernels/activation.h, which must agree with the definitions here.

    relu(x)      x where x > 0, NaN where x is NaN, else +0.0 (so relu(-0.0) is +0.0)
    gelu_erf(x)  x * (1 + erf(x / sqrt 2)) / 2
    gelu_tanh(x) x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2
    Both gelu: within 4e-7 (1 + |x|) of the true value; gelu(inf) = inf, gelu(-inf) is a zero, NaN stays.
    Source: Hendrycks and Gimpel, Gaussian Error Linear Units, 2016.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from .errors import UnsupportedError


class Activation(IntEnum):
    """The number is the code by which kernels and shaders know the function."""

    NONE = 0
    RELU = 1
    GELU_ERF = 2
    GELU_TANH = 3

    @staticmethod
    def of(name: object) -> Activation:
        """None, "relu", "gelu_erf" or "gelu_tanh"; anything else is a ValueError that lists the known ones."""
        if name is None:
            return Activation.NONE
        if isinstance(name, str) and name in _NAMES:
            return _NAMES[name]
        raise ValueError(f"unknown activation {name!r}; known: None, {', '.join(map(repr, _NAMES))}")


def require_exact_activation(operation: str, activation: Activation) -> None:
    """UnsupportedError for a gelu: "exact" means the correctly rounded value, and nobody has bounded how close a value of erf or
    tanh can come to a point halfway between two numbers. relu keeps or drops the exact value, so it is exact."""
    if activation not in (Activation.NONE, Activation.RELU):
        raise UnsupportedError(
            f'{operation}: activation {activation.name.lower()!r} cannot be correctly rounded, so mode "exact" takes None and '
            '"relu"; apply it to the exact result, or use mode "deterministic"'
        )


_NAMES = {each.name.lower(): each for each in Activation if each is not Activation.NONE}


@dataclass(frozen=True, slots=True)
class GemmEpilogue:
    """The epilogue of `Gemm.encode`.

    bias: a device buffer of float32, element `bias_offset + j` is added to column j of every row of every product.
    activation: None, "relu", "gelu_erf" or "gelu_tanh".
    """

    bias: Any = None
    bias_offset: int = 0
    activation: str | None = None
