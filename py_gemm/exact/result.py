"""Result: an exact product that is computed as far as it is asked about, once.

`rounded`, `normal()`, `tolerance()`, `covers()` and `margin()` are each computed on first use and kept. A result with several
outputs (of `gemm.backward`) answers each with `Outputs`: a mapping from the outputs' names that also has them as attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ShapeError
from .arrays import Array, existing
from .codes import decode, encode, storage_dtype
from .evaluate import engine_for, nearest, rounded
from .expression import Expression
from .intervals import Interval, covers, make_interval, margin, tolerance
from .normal import normal_answer
from .special import Floats
from .tolerance import Bounds, bounds, find_standard

SHOWN = 6  # rows and columns that a notebook shows


class Outputs(Mapping[str, Any]):
    """Several named outputs: a mapping, and each an attribute."""

    def __init__(self, outputs: dict[str, Any]) -> None:
        self._outputs = outputs

    def __getitem__(self, name: str) -> Any:
        return self._outputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_outputs"][name]
        except KeyError:
            raise AttributeError(f"no output {name!r}; there are {', '.join(self.__dict__.get('_outputs', ()))}") from None

    def __repr__(self) -> str:
        return f"Outputs({', '.join(f'{name}={value!r}' for name, value in self._outputs.items())})"


class Answer:
    """What is known of one output; every property is computed once."""

    def __init__(self, expression: Expression) -> None:
        self.expression = expression
        self._kept: dict[str, Any] = {}

    def _once(self, name: str, compute: Callable[[], Any]) -> Any:
        if name not in self._kept:
            self._kept[name] = compute()
        return self._kept[name]

    def rounded(self) -> Array:
        found: Array = self._once("rounded", lambda: Array(rounded(self.expression), self.expression.form))
        return found

    def normal(self) -> Array:
        found: Array = self._once("normal", lambda: Array(normal_answer(self.expression), self.expression.form))
        return found

    def exact(self) -> list[tuple[Floats, Floats]]:
        found: list[tuple[Floats, Floats]] = self._once("exact", lambda: nearest(self.expression))
        return found

    def tolerance(self, standard: str) -> NDArray[Any]:
        standard = find_standard(self.expression, standard)
        found: NDArray[Any] = self._once(f"tolerance {standard}", lambda: self._tolerance(standard))
        return found

    def _tolerance(self, standard: str) -> NDArray[Any]:
        integers = self.expression.form.kind == "int"
        found = (
            np.zeros(self.expression.shape) if integers else self._together([tolerance(each) for each in self._intervals(standard)])
        )
        found.flags.writeable = False  # it is kept
        return found

    def covers(self, x: object, standard: str) -> NDArray[np.bool_]:
        standard = find_standard(self.expression, standard)
        values = self._values(x)
        if self.expression.form.kind == "int":
            return np.asarray(values == self.rounded().values)
        parts = self._parts(values)
        if standard == "any_order" or f"bounds {standard}" in self._kept:
            found = self._covered(self._bounds(standard), parts)
        else:
            found = self._covered(
                self._once("least bounds", lambda: bounds(self.expression, standard, only=self._nowhere())), parts
            )
            if not all(each.all() for each in found):
                # what no order of summation covers needs no closer look, nor does what little enough error covers
                possible = self._covered(self._bounds("any_order"), parts)
                unknown = [some & ~sure for some, sure in zip(possible, found, strict=True)]
                if any(each.any() for each in unknown):
                    found = self._covered(bounds(self.expression, standard, only=unknown), parts)
        return np.asarray(np.logical_and.reduce(found).reshape(self.expression.shape))

    def margin(self, x: object, standard: str) -> Floats:
        standard = find_standard(self.expression, standard)
        values = self._values(x)
        if self.expression.form.kind == "int":
            return np.where(values == self.rounded().values, 0.0, np.inf)
        parts = self._parts(values)
        found = [margin(interval, part) for interval, part in zip(self._intervals(standard), parts, strict=True)]
        return np.asarray(np.maximum.reduce(found).reshape(self.expression.shape))

    def _bounds(self, standard: str) -> list[Bounds]:
        found: list[Bounds] = self._once(f"bounds {standard}", lambda: bounds(self.expression, standard))
        return found

    def _nowhere(self) -> list[NDArray[np.bool_]]:
        expression = self.expression
        return [np.zeros((expression.groups, expression.m, expression.n), np.bool_) for _ in expression.parts]

    def _covered(self, found: list[Bounds], parts: list[Floats]) -> list[NDArray[np.bool_]]:
        return [covers(interval, part) for interval, part in zip(self._make(found), parts, strict=True)]

    def _intervals(self, standard: str) -> list[Interval]:
        return self._make(self._bounds(standard))

    def _make(self, found: list[Bounds]) -> list[Interval]:
        expression = self.expression
        return [
            make_interval(high, low, bound, expression.form.part, expression.rounding, expression.overflow)
            for (high, low), bound in zip(self.exact(), found, strict=True)
        ]

    def _values(self, x: object) -> NDArray[Any]:
        """The values of a result to be judged. ShapeError for another shape, ValueError for values that the format has not."""
        form = self.expression.form
        found = existing(x)
        kept = storage_dtype(form)
        if found is not None and found.stored.dtype == kept and kept.kind == "u" and form.kind == "float" and found is not x:
            found = Array(found.stored, form)  # the bits, as `numpy` gives them without ml_dtypes
        values = np.asarray(x) if found is None else found.values
        if values.dtype == object or values.dtype.kind not in "iufc" or (values.dtype.kind == "c" and form.kind != "complex"):
            raise TypeError(f"{type(x).__name__} of {values.dtype} cannot be compared with a result of {form}")
        if values.shape != self.expression.shape:
            raise ShapeError(f"covers: x has the shape {values.shape}, the result {self.expression.shape}")
        if found is not None and found.form is form:
            return values
        wanted = values if form.kind == "int" else values.astype(np.complex128 if form.kind == "complex" else np.float64)
        return decode(encode(wanted, form), form)

    def _parts(self, values: NDArray[Any]) -> list[Floats]:
        expression = self.expression
        shape = (expression.groups, expression.m, expression.n)
        parts = [values.real, values.imag] if expression.form.kind == "complex" else [values]
        return [np.ascontiguousarray(each, np.float64).reshape(shape) for each in parts]

    def _together(self, parts: list[Floats]) -> NDArray[Any]:
        shape = self.expression.shape
        if len(parts) == 1:
            return parts[0].reshape(shape)
        found = np.empty(shape, np.complex128)
        found.real, found.imag = (each.reshape(shape) for each in parts)
        return found


class Result:
    """The exact value of a product, rounded once; see the head of this file.

    shape, dtype (the name of the format) of the result, engine (which one sums).
    """

    def __init__(self, expression: Expression | dict[str, Expression]) -> None:
        self._named = isinstance(expression, dict)
        named = expression if isinstance(expression, dict) else {"": expression}
        self._answers = {name: Answer(each) for name, each in named.items()}

    @property
    def rounded(self) -> Any:
        """The exact value rounded once: an Array, or Outputs of Arrays. OverflowError where overflow="error" and one is past the
        range."""
        return self._each(lambda answer: answer.rounded())

    def normal(self) -> Any:
        """The reference BLAS order's answer (normal.py): an Array, or Outputs of Arrays."""
        return self._each(lambda answer: answer.normal())

    def tolerance(self, standard: str = "normal") -> Any:
        """How far from the exact value a correct result may be, rounded up: float64 of the result's shape, read only, the final
        rounding included.

        standard: "normal" (usual orders of summation) or "any_order"; tolerance.py defines both. 0 for integers and where the
        exact value is NaN or infinite; infinite where a correct implementation may overflow on the way. Of complex results: real
        and imaginary part. "normal" looks at every partial sum (some hundred operations a product: seconds for 512 cubed);
        `covers` needs that only for elements near the edge.
        """
        return self._each(lambda answer: answer.tolerance(standard))

    def covers(self, x: object, standard: str = "normal") -> Any:
        """Elementwise: whether a correct implementation could return x. A NaN is covered by a NaN; -0.0 and 0.0 are one number.

        x: of the result's shape (ShapeError), with values that its format has (ValueError); bfloat16 and 8-bit floats may come as
        their bits, in uint16 and uint8, too. For several outputs a mapping or a sequence.
        """
        return self._each(lambda answer, each: answer.covers(each, standard), x)

    def margin(self, x: object, standard: str = "normal") -> Any:
        """How far out x is, in units of the tolerance on its side of the exact value, float64: at most 1 exactly where x is
        covered, 0 only where x is the exact value. Distances are good to float64's lowest number, 2**-1074."""
        return self._each(lambda answer, each: answer.margin(each, standard), x)

    @property
    def shape(self) -> Any:
        return self._each(lambda answer: answer.expression.shape)

    @property
    def dtype(self) -> Any:
        return self._each(lambda answer: answer.expression.form.name)

    @property
    def engine(self) -> Any:
        return self._each(lambda answer: engine_for(answer.expression))

    def _each(self, function: Callable[..., Any], *given: object) -> Any:
        if not self._named:
            return function(self._answers[""], *given)
        if not given:
            return Outputs({name: function(answer) for name, answer in self._answers.items()})
        values = self._named_values(given[0])
        return Outputs({name: function(answer, values[name]) for name, answer in self._answers.items()})

    def _named_values(self, x: object) -> dict[str, object]:
        if isinstance(x, Mapping):
            if set(x) != set(self._answers):
                raise ValueError(f"the outputs are {', '.join(self._answers)}, not {', '.join(map(str, x))}")
            return dict(x)
        if not isinstance(x, (list, tuple)) or len(x) != len(self._answers):
            raise ValueError(f"a mapping or a sequence with the outputs {', '.join(self._answers)} is needed")
        return dict(zip(self._answers, x, strict=True))

    def __repr__(self) -> str:
        about = [
            f"{name + ': ' if name else ''}{answer.expression.form} {answer.expression.shape}"
            for name, answer in self._answers.items()
        ]
        return f"<exact Result {', '.join(about)}>"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """`rounded` as NumPy's array; TypeError for several outputs."""
        if self._named:
            raise TypeError(f"this result has the outputs {', '.join(self._answers)}; `rounded` has the array of each")
        found: Array = self.rounded
        return found.__array__(dtype, copy)

    def _repr_html_(self) -> str:
        return "".join(_table(name, answer) for name, answer in self._answers.items())


def _table(name: str, answer: Answer) -> str:
    """The first rows and columns of the rounded result as an HTML table; where it is past the range, the words that say so."""
    try:
        array = answer.rounded()
    except OverflowError as past:
        return f"<p>{escape(f'{name}: {past}' if name else str(past))}</p>"
    title = f"{name + ': ' if name else ''}exact, rounded to {array.dtype}, shape {array.shape}"
    values = array.values
    first = values[(0,) * max(0, values.ndim - 2)] if values.size else np.empty((0, 0))
    corner = np.atleast_2d(first)[:SHOWN, :SHOWN]
    cut = corner.size < array.size
    rows = "".join("<tr>" + "".join(f"<td>{escape(str(each))}</td>" for each in row) + "</tr>" for row in corner.tolist())
    return f"<table><caption>{escape(title)}{' (its first corner)' if cut else ''}</caption><tbody>{rows}</tbody></table>"
