"""The exact products that callers ask for: `gemm` and `matmul`. They check, make an Expression and hand it to a lazy Result.

    D = beta * C + alpha * (A @ B), the exact value, rounded once

Nothing is computed before something of the Result is read.
"""

from __future__ import annotations

from .backward import backward
from .expression import make_expression
from .result import Result
from .rounding import Rounding


class Gemm:
    """The function `gemm`, with `gemm.backward` beside it."""

    __name__ = "gemm"

    def __call__(
        self,
        A: object,  # noqa: N803 (the names of the BLAS)
        B: object,  # noqa: N803
        C: object = None,  # noqa: N803
        *,
        alpha: object = 1,
        beta: object = 1,
        reduce_batch: bool = False,
        dtype: object = None,
        rounding: Rounding = Rounding.NEAREST_EVEN,
        overflow: str | None = None,
        engine: str | None = None,
    ) -> Result:
        """D = beta * C + alpha * (A @ B): exact, rounded once to `dtype`.

        A, B: matrices [..., m, k] and [..., k, n] with matmul's broadcasting of batches and its promotion of vectors. C:
        broadcast to the result's shape; None: none. Arrays of er, NumPy or PyTorch, nested lists, or earlier results.
        alpha, beta: int, float, Fraction, Decimal, or complex where the operands are; taken exactly. With beta = 0 C is not read,
        with alpha = 0 neither A nor B. reduce_batch: the result's batch dimensions are summed into the contraction.
        dtype: the format of the result, of the operands' kind; None: the format that A, B and C promote to, as in a sum.
        rounding: of the reference, and of the final step into the format. overflow: "ieee", "saturate" or "nan" for floats; "wrap",
        "error" or "saturate" for integers; None: the format's own rule.
        engine: forces "rational", "fsum", "ozaki" or "superaccumulator"; the result is the same.
        TypeError for operands of different kinds, ShapeError for shapes that do not fit, ValueError for unknown names.
        """
        return Result(
            make_expression(
                "gemm",
                A,
                B,
                C,
                alpha=alpha,
                beta=beta,
                reduce_batch=reduce_batch,
                dtype=dtype,
                rounding=rounding,
                overflow=overflow,
                engine=engine,
            )
        )

    backward = staticmethod(backward)

    def __repr__(self) -> str:
        return "<function gemm>"


gemm = Gemm()
gemm.__doc__ = Gemm.__call__.__doc__


def matmul(
    A: object,  # noqa: N803
    B: object,  # noqa: N803
    *,
    dtype: object = None,
    rounding: Rounding = Rounding.NEAREST_EVEN,
    overflow: str | None = None,
    engine: str | None = None,
) -> Result:
    """A @ B: `gemm` without C."""
    return gemm(A, B, dtype=dtype, rounding=rounding, overflow=overflow, engine=engine)
