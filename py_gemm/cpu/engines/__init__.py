"""The engines that run WebAssembly, what they have in common, and which one this interpreter uses."""

from __future__ import annotations

import sys
from functools import cache
from typing import Protocol

from ..blocking import Blocking
from ..families import EngineTraits, Row
from ..plan import Plan


class Bound(Protocol):
    """A kernel bound to a plan: called with the native addresses of a, b, c, d and bias (0 where absent)."""

    def __call__(self, a: int, b: int, c: int, d: int, bias: int) -> None: ...


class Engine(Protocol):
    """traits: what the choice of a row needs. info: how the engine works here, for people to read, with at least "engine".

    zero_copy: operands are read where the interpreter keeps them.
    """

    @property
    def traits(self) -> EngineTraits: ...

    @property
    def zero_copy(self) -> bool: ...

    @property
    def info(self) -> dict[str, str]: ...

    def bind(self, row: Row, plan: Plan, blocking: Blocking) -> Bound:
        """Everything that can be done before addresses are known. The bound kernel raises DeviceMemoryError, operands untouched."""
        ...


@cache
def default_engine() -> Engine:
    """The engine of this interpreter, made once. UnsupportedError where there is none."""
    if sys.platform == "emscripten":
        from .browser import make_browser_engine

        return make_browser_engine()
    from .wasmtime import WasmtimeEngine

    return WasmtimeEngine()
