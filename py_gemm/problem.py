"""Problem: one batched product as plain data, and every check on it, in exact Python integers.

    D[b] = act(alpha * A[b] @ B[b] + beta * C[b] + bias),  A: m x k, B: k x n, C and D: m x n, b over `batch`

Imports no device, no engine and no NumPy. All counts are elements of the operand's own type.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from numbers import Complex, Real
from operator import index

from .dtypes import FLOAT32, ElementType, accumulator_type
from .errors import AliasError, ShapeError


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the elements of a batch of matrices lie in their buffer, and their type.

    Element (b, i, j) is at offset + sum(b_d * batch_strides[d]) + i * row_stride + j * column_stride.
    Strides may be negative or zero; a transposed operand is one with its strides swapped.
    """

    type: ElementType
    row_stride: int
    column_stride: int
    batch_strides: tuple[int, ...] = ()
    offset: int = 0

    def extent(self, rows: int, columns: int, batch: tuple[int, ...]) -> tuple[int, int]:
        """The first element index touched and one past the last: (low, high); (offset, offset) where nothing is."""
        if rows == 0 or columns == 0 or 0 in batch:
            return self.offset, self.offset
        low = high = self.offset
        for size, stride in ((rows, self.row_stride), (columns, self.column_stride), *zip(batch, self.batch_strides, strict=True)):
            reach = (size - 1) * stride
            low += min(reach, 0)
            high += max(reach, 0)
        return low, high + 1

    def repeats(self, rows: int, columns: int, batch: tuple[int, ...]) -> bool:
        """Whether two different indices can name one element. Exact for nested strides, true where it cannot be excluded."""
        sizes_strides = [
            (abs(stride), size)
            for size, stride in (
                (rows, self.row_stride),
                (columns, self.column_stride),
                *zip(batch, self.batch_strides, strict=True),
            )
            if size > 1
        ]
        reach = 0
        for stride, size in sorted(sizes_strides):
            if stride <= reach:
                return True
            reach += stride * (size - 1)
        return False


@dataclass(frozen=True, slots=True)
class Problem:
    """Sizes, layouts and scalars of one call. `c` is None where beta is zero (C is then never read)."""

    m: int
    n: int
    k: int
    a: Layout
    b: Layout
    d: Layout
    c: Layout | None = None
    batch: tuple[int, ...] = ()
    alpha: float = 1.0
    beta: float = 0.0

    @property
    def accumulator(self) -> ElementType:
        return accumulator_type(self.a.type, self.b.type)

    @property
    def products(self) -> int:
        """How many matrix products the batch holds."""
        return prod(self.batch)

    @property
    def reads_operands(self) -> bool:
        """A and B are not read where alpha is zero or the sum is empty."""
        return self.alpha != 0.0 and self.k > 0

    @property
    def is_empty(self) -> bool:
        return self.m == 0 or self.n == 0 or 0 in self.batch


def collapse_batch(
    batch: tuple[int, ...], strides: tuple[tuple[int, ...], ...]
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Merge neighbouring batch dimensions wherever all operands step through both as through one.

    `strides` holds one tuple per operand, each as long as `batch`. Dimensions of size 1 vanish. The order of the
    products is kept. Returns the new batch and the new strides.
    """
    sizes: list[int] = []
    merged: list[list[int]] = [[] for _ in strides]
    for position, size in enumerate(batch):
        if size == 1:
            continue
        steps = [each[position] for each in strides]
        if sizes and all(operand[-1] == step * size for operand, step in zip(merged, steps, strict=True)):
            sizes[-1] *= size
            for operand, step in zip(merged, steps, strict=True):
                operand[-1] = step
        else:
            sizes.append(size)
            for operand, step in zip(merged, steps, strict=True):
                operand.append(step)
    return tuple(sizes), tuple(tuple(each) for each in merged)


def matmul_shapes(operation: str, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[tuple[int, ...], int, int, int]:
    """(batch, m, n, k) of two operands of at least two dimensions; ShapeError naming `operation` and both shapes otherwise."""
    m, k = a[-2:]
    k_of_b, n = b[-2:]
    if k != k_of_b:
        raise ShapeError(f"{operation}: dimension k differs: a has {k} columns, b has {k_of_b} rows (a {a}, b {b})")
    return broadcast(operation, "batch", a[:-2], b[:-2], (a, b)), m, n, k


def broadcast(
    operation: str, what: str, first: tuple[int, ...], second: tuple[int, ...], shown: tuple[tuple[int, ...], tuple[int, ...]]
) -> tuple[int, ...]:
    """The common shape of two by NumPy's rule; `shown` are the whole shapes for the error's text."""
    length = max(len(first), len(second))
    left = (1,) * (length - len(first)) + first
    right = (1,) * (length - len(second)) + second
    result = []
    for position, (x, y) in enumerate(zip(left, right, strict=True)):
        if x != y and 1 not in (x, y):
            raise ShapeError(
                f"{operation}: {what} dimension {position - length} does not broadcast: {x} and {y} "
                f"(shapes {shown[0]} and {shown[1]})"
            )
        result.append(y if x == 1 else x)
    return tuple(result)


def dense_problem(
    operation: str,
    m: int,
    n: int,
    k: int,
    *,
    type_in: ElementType = FLOAT32,
    transpose_a: bool = False,
    transpose_b: bool = False,
    alpha: float = 1.0,
    beta: float = 0.0,
    batch: int = 1,
    lda: int | None = None,
    ldb: int | None = None,
    ldc: int | None = None,
    stride_a: int | None = None,
    stride_b: int | None = None,
    stride_c: int | None = None,
    offset_a: int = 0,
    offset_b: int = 0,
    offset_c: int = 0,
) -> Problem:
    """The form of `Gemm.encode`: row-major operands with leading dimensions, C updated in place, all checks of sizes done.

    lda, ldb, ldc default to the length of a stored row; stride_* (between the products of the batch) to the dense size.
    stride_a and stride_b may be 0 (one operand shared by the batch); stride_c must keep the outputs apart.
    """
    alpha, beta = real_number(operation, "alpha", alpha), real_number(operation, "beta", beta)
    for name, value in (
        ("m", m), ("n", n), ("k", k), ("batch", batch), ("offset_a", offset_a), ("offset_b", offset_b), ("offset_c", offset_c),
    ):  # fmt: skip
        require_count(operation, name, value)
    rows_a, columns_a = (k, m) if transpose_a else (m, k)
    rows_b, columns_b = (n, k) if transpose_b else (k, n)
    leading = {}
    for name, given, length in (("lda", lda, columns_a), ("ldb", ldb, columns_b), ("ldc", ldc, n)):
        value = length if given is None else given
        require_count(operation, name, value)
        if value < length:
            raise ShapeError(f"{operation}: {name} is {value}, less than the {length} elements of a row")
        leading[name] = value
    stride = {}
    for name, given, rows, ld in (
        ("stride_a", stride_a, rows_a, leading["lda"]),
        ("stride_b", stride_b, rows_b, leading["ldb"]),
        ("stride_c", stride_c, m, leading["ldc"]),
    ):
        value = rows * ld if given is None else given
        require_count(operation, name, value)
        stride[name] = value
    extent_c = (m - 1) * leading["ldc"] + n if m and n else 0
    if batch > 1 and stride["stride_c"] < extent_c:
        raise ShapeError(
            f"{operation}: stride_c is {stride['stride_c']}, less than the {extent_c} elements that one product of the batch spans"
        )
    strides_a = (1, leading["lda"]) if transpose_a else (leading["lda"], 1)
    strides_b = (1, leading["ldb"]) if transpose_b else (leading["ldb"], 1)
    layout_c = Layout(FLOAT32, leading["ldc"], 1, (stride["stride_c"],), offset_c)
    return Problem(
        m, n, k,
        Layout(type_in, *strides_a, (stride["stride_a"],), offset_a),
        Layout(type_in, *strides_b, (stride["stride_b"],), offset_b),
        layout_c,
        layout_c if beta != 0.0 else None,
        (batch,), alpha, beta,
    )  # fmt: skip


def real_number(operation: str, name: str, value: object) -> float:
    """Alpha or beta as a float; TypeError for what is not a real number, ValueError for one past float64."""
    if isinstance(value, (complex, str)) or (isinstance(value, Complex) and not isinstance(value, Real)):
        raise TypeError(f"{operation}: {name} must be a real number, not {value!r}")
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError as error:
        raise ValueError(f"{operation}: {name} is too large for a float64") from error
    except (TypeError, ValueError) as error:
        raise TypeError(f"{operation}: {name} must be a real number, not {value!r}") from error


def whole_number(operation: str, name: str, value: object) -> int:
    """An integer of whatever kind (NumPy's too) as int; ShapeError for anything else, bool included."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ShapeError(f"{operation}: {name} must be an integer, not {value!r}")
    return index(value)


def require_count(operation: str, name: str, value: object) -> None:
    """A size, stride or offset must be an integer that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ShapeError(f"{operation}: {name} must be an integer, not {value!r}")
    if value < 0:
        raise ShapeError(f"{operation}: {name} is negative: {value}")


def require_in_buffer(operation: str, name: str, extent: tuple[int, int], elements: int) -> None:
    """The elements [low, high) of operand `name` must lie in a buffer of `elements`."""
    low, high = extent
    if low == high:
        return
    if low < 0 or high > elements:
        raise ShapeError(f"{operation}: {name} needs elements {low} to {high - 1}, its buffer holds {elements}")


def require_apart(operation: str, problem: Problem) -> None:
    """D must not name one element twice."""
    if problem.d.repeats(problem.m, problem.n, problem.batch):
        raise AliasError(f"{operation}: elements of the output share memory (strides {problem.d})")
