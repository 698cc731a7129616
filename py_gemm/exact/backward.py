"""The gradients of gemm, each element an exact value rounded once.

    grad_A = conj(alpha) grad @ B^H,   grad_B = conj(alpha) A^H @ grad,   grad_C = conj(beta) grad

each summed over the copies that broadcasting and reduce_batch made of its operand: the summed axes become part of one
contraction, so nothing is rounded in between. Only decides shapes and makes Expressions.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ShapeError
from .arrays import Array, asarray
from .engines import find_engine
from .expression import Expression, Operand, named_array, operand_array, result_shapes
from .formats import Format, compute_format, find_format, overflow_rule, promote_all
from .result import Result
from .rounding import Rounding, find_rounding
from .special import Coefficient, coefficient

Complex = tuple[Coefficient, Coefficient]

NOTHING: Complex = (Fraction(0), Fraction(0))


@dataclass(frozen=True, slots=True)
class Rules:
    """How gradients are rounded. form: asked for all of them, or None for that of each operand."""

    form: Format | None
    rounding: Rounding
    overflow: str | None
    engine: str | None


def backward(
    A: object,  # noqa: N803 (the names of the BLAS)
    B: object,  # noqa: N803
    C: object,  # noqa: N803
    grad: object,
    *,
    alpha: object = 1,
    beta: object = 1,
    reduce_batch: bool = False,
    dtype: object = None,
    rounding: Rounding = Rounding.NEAREST_EVEN,
    overflow: str | None = None,
    engine: str | None = None,
) -> Result:
    """The gradients of gemm(A, B, C, alpha=alpha, beta=beta, reduce_batch=reduce_batch) for the output gradient `grad`.

    A Result with the outputs grad_A, grad_B and (where there is a C) grad_C, each in its operand's shape, and format unless
    `dtype` names another. grad: of the result's shape (ShapeError). With alpha = 0, A and B are not read and their gradients are
    zeros; with beta = 0 that of C. Where only some operands are complex, the gradient of a real one is the real part. Everything
    else as in gemm.
    """
    a, b = operand_array("gemm.backward", "A", A), operand_array("gemm.backward", "B", B)
    c = None if C is None else named_array("gemm.backward", "C", C)
    given = named_array("gemm.backward", "grad", grad)
    kind = promote_all([each.form for each in (a, b, c, given) if each is not None]).kind
    if engine is not None:
        find_engine(engine, integers=kind == "int")
    batch, shape = result_shapes("gemm.backward", a.shape, b.shape, reduce_batch=reduce_batch)
    if given.shape != shape:
        raise ShapeError(f"gemm.backward: grad has the shape {given.shape}, the output {shape}")
    rules = Rules(None if dtype is None else find_format(dtype), find_rounding(rounding), overflow, engine)
    factors = [_conjugate(coefficient(name, value, kind)) for name, value in (("alpha", alpha), ("beta", beta))]
    left = a.stored if a.ndim > 1 else a.stored[None, :]
    right = b.stored if b.ndim > 1 else b.stored[:, None]
    m, n = left.shape[-2], right.shape[-1]
    slopes = np.broadcast_to(given.stored.reshape(*(() if reduce_batch else batch), m, n), (*batch, m, n))
    outputs = {
        "grad_A": _gradient(a, Array(slopes, given.form), Array(_hermitian(right), b.form), left.shape, batch, factors[0], rules),
        "grad_B": _gradient(b, Array(_hermitian(left), a.form), Array(slopes, given.form), right.shape, batch, factors[0], rules),
    }
    if c is not None:
        outputs["grad_C"] = _addend_gradient(c, given, factors[1], rules)
    return Result(outputs)


def _conjugate(factor: Complex) -> Complex:
    return factor[0], -factor[1]


def _hermitian(stored: NDArray[Any]) -> NDArray[Any]:
    turned = np.swapaxes(stored, -1, -2)
    return np.conj(turned) if stored.dtype.kind == "c" else turned


def _gradient(
    operand: Array, left: Array, right: Array, matrix: tuple[int, ...], batch: tuple[int, ...], factor: Complex, rules: Rules
) -> Expression:
    """The gradient factor * left @ right, summed over the batch dimensions along which `operand` (as a stack of shape `matrix`)
    was copied."""
    own = (1,) * (len(batch) - len(matrix) + 2) + matrix[:-2]
    summed = [axis for axis, size in enumerate(own) if size == 1]
    kept = [axis for axis, size in enumerate(own) if size != 1]
    kept_batch = tuple(batch[axis] for axis in kept)
    copies = prod(batch[axis] for axis in summed)
    first = np.broadcast_to(left.stored, (*batch, *left.shape[-2:]))
    second = np.broadcast_to(right.stored, (*batch, *right.shape[-2:]))
    rank = len(batch)
    rows, inner, columns = first.shape[-2], first.shape[-1], second.shape[-1]
    first = first.transpose(*kept, rank, *summed, rank + 1).reshape(*kept_batch, rows, copies * inner)
    second = second.transpose(*kept, *summed, rank, rank + 1).reshape(*kept_batch, copies * inner, columns)
    return _expression(
        Operand(first, left.form),
        Operand(second, right.form),
        None,
        factor,
        NOTHING,
        kept_batch,
        operand,
        (left.form, right.form),
        rules,
    )


def _addend_gradient(c: Array, grad: Array, factor: Complex, rules: Rules) -> Expression:
    """The gradient factor * grad, summed over the axes along which C was copied: one product an element where there are none."""
    own = (1,) * (grad.ndim - c.ndim) + c.shape
    if len(own) > grad.ndim or any(size not in (1, wanted) for size, wanted in zip(own, grad.shape, strict=True)):
        raise ShapeError(f"gemm.backward: C of shape {c.shape} does not broadcast to the result's shape {grad.shape}")
    summed = [axis for axis, (size, wanted) in enumerate(zip(own, grad.shape, strict=True)) if size != wanted]
    kept = [axis for axis in range(grad.ndim) if axis not in summed]
    copies = prod(grad.shape[axis] for axis in summed)
    stored = grad.stored.transpose(*summed, *kept).reshape(copies, -1 if copies else prod(c.shape))
    if not summed:
        return _expression(None, None, Operand(stored, grad.form), NOTHING, factor, (), c, (grad.form,), rules)
    ones = asarray([[1] * copies], grad.form.part)
    return _expression(
        Operand(ones.stored.reshape(1, copies), ones.form, is_real=True),
        Operand(stored, grad.form),
        None,
        factor,
        NOTHING,
        (),
        c,
        (grad.form,),
        rules,
    )


def _expression(
    left: Operand | None,
    right: Operand | None,
    addend: Operand | None,
    alpha: Complex,
    beta: Complex,
    batch: tuple[int, ...],
    operand: Array,
    formats: tuple[Format, ...],
    rules: Rules,
) -> Expression:
    form = operand.form if rules.form is None else rules.form
    operands = promote_all(list(formats))
    if form.kind == "complex" and operands.kind != "complex":
        operands = promote_all([operands, form])
    if (form.kind == "int") != (operands.kind == "int"):
        raise TypeError(f"gemm.backward: dtype={form} is of another kind than the gradient's {operands}")
    sizes = (left, right) if left is not None and right is not None else (addend, addend)
    m = sizes[0].stored.shape[-2] if sizes[0] is not None else 0
    n = sizes[1].stored.shape[-1] if sizes[1] is not None else 0
    k = left.stored.shape[-1] if left is not None else 0
    reads = any(each != 0 for each in alpha) and k > 0
    adds = any(each != 0 for each in beta)
    return Expression(
        left if reads else None,
        right if reads else None,
        addend if adds else None,
        alpha,
        beta,
        batch,
        m,
        n,
        k,
        operand.shape,
        operands,
        form,
        compute_format(operands, form),
        rules.rounding,
        overflow_rule(form.part, rules.overflow),
        rules.engine,
    )
