"""The knobs: argument, then `configure(...)`, then the environment (`PY_GEMM_*`, read once), then the default.

A value of the environment that makes no sense warns and is ignored; one given to `configure` is an error.
Names of rows (variant, token) are checked where they are used: one that is not available is an error, never a fallback.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Knob:
    """`default` says what holds where nothing is set; `source` where that default comes from."""

    name: str
    parse: Callable[[Any], Any]
    default: Any
    source: str

    @property
    def variable(self) -> str:
        return f"PY_GEMM_{self.name.upper()}"


def _word(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a name is expected")
    return value.strip().lower()


def _device_kind(value: Any) -> str:
    word = _word(value)
    if word not in DEVICE_KINDS:
        raise ValueError(f"known kinds: {', '.join(DEVICE_KINDS)}")
    return word


def _count(value: Any, least: int = 0, unit: str = "") -> int:
    try:
        count = int(value)
        is_bool = isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", "") == "b"
        if not is_bool and count >= least and (isinstance(value, str) or count == value):
            return count
    except (ValueError, TypeError, OverflowError):
        pass  # no number at all: said below, in the same words
    raise ValueError(f"a whole number{unit} of at least {least} is expected")


def _positive(value: Any) -> int:
    return _count(value, 1)


def _milliseconds(value: Any) -> int:
    return _count(value, 1, " of milliseconds")


DEVICE_KINDS = ("webgpu", "wgpu", "vulkan", "metal", "cpu")

KNOBS: dict[str, Knob] = {
    row.name: row
    for row in (
        Knob("device", _device_kind, None, "None: the best device for each call"),
        Knob("variant", _word, None, "None: the first row of gpu/variants.py whose conditions hold"),
        Knob("token", _word, None, "None: the first row of cpu/families.py whose conditions hold"),
        Knob(
            "deep_kc_bytes", _count, 0, "0: half of the L2 that cpu/blocking.py pins (512 KiB), the size past which panels miss it"
        ),
        Knob("gpu_min_flops", _count, 64_000_000, "what the CPU road does in the 2 ms that one GPU round trip costs in a page"),
        Knob("submission_ms", _milliseconds, 150, "a GPU is reset after 2 s of one submission, a page stutters from 200 ms on"),
        Knob("pool_bytes", _count, 256 << 20, "unused GPU buffers kept for re-use: four float32 operands of 4096 x 4096"),
        Knob("threads", _positive, None, "None: as many as cores are usable, at most 8"),
        Knob("parallel_threshold", _count, 8_000_000, "multiply-adds below which one thread is faster than two (200 cubed)"),
        Knob("par_mnk_per_worker", _positive, 2_000_000, "multiply-adds that pay for waking a thread"),
        Knob("small_parallel_mnk", _count, 768**3, "gemmkit: m * n * k below which int8 on several threads takes no dot row"),
    )
}

_configured: dict[str, Any] = {}
_environment: dict[str, Any] = {}


def configure(**knobs: Any) -> None:
    """Set knobs for this process: `configure(token="simd128", device="cpu")`; None restores the default.

    Raises ValueError for an unknown knob (the text lists the known ones) or a value that makes no sense.
    """
    accepted = {}
    for name, value in knobs.items():
        if name not in KNOBS:
            raise ValueError(f"configure: unknown knob {name!r}; known: {', '.join(KNOBS)}")
        accepted[name] = None if value is None else parse_knob("configure", name, value)
    _configured.update(accepted)


def parse_knob(operation: str, name: str, value: Any) -> Any:
    """The value as the knob takes it; ValueError that names operation, knob and value where it makes no sense."""
    try:
        return KNOBS[name].parse(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{operation}: {name}={value!r}: {error}") from error


def knob(name: str) -> Any:
    """The value in force."""
    value = _configured.get(name)
    if value is not None:
        return value
    if name not in _environment:
        _environment[name] = _read_environment(KNOBS[name])
    value = _environment[name]
    return KNOBS[name].default if value is None else value


def _read_environment(row: Knob) -> Any:
    text = os.environ.get(row.variable)
    if text is None:
        return None
    try:
        return row.parse(text)
    except (ValueError, TypeError, OverflowError) as error:
        warnings.warn(f"{row.variable}={text!r} is ignored: {error}", RuntimeWarning, stacklevel=2)
        return None
