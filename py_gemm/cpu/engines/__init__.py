"""The engines that run WebAssembly, what they have in common, and which one this interpreter uses."""

from __future__ import annotations

import sys
from functools import cache
from typing import Protocol

from ..blocking import Blocking
from ..families import EngineTraits, Row
from ..plan import Plan


class Bound(Protocol):
    """A kernel bound to a plan: called with the native addresses of a, b, c, d and bias (0 where absent).

    Returns on how many threads it ran.
    """

    def __call__(self, a: int, b: int, c: int, d: int, bias: int) -> int: ...


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

    def threads(self, wanted: int) -> tuple[int, str]:
        """On how many of `wanted` threads a product can run here, now or as soon as they are up; and why so, in words."""
        ...

    async def threads_up(self, threads: int) -> None:
        """Start what a product on so many threads needs, and return once it is there, or once it is clear that it will not be."""
        ...

    def bind_strips(self, row: Row, plan: Plan, blocking: Blocking, threads: int) -> Bound:
        """As `bind`, in strips on `threads` threads, which `threads()` allows. Where they are not to be had, it runs on one."""
        ...


@cache
def default_engine() -> Engine:
    """The engine of this interpreter, made once. UnsupportedError where there is none."""
    if sys.platform == "emscripten":
        from .browser import make_browser_engine

        return make_browser_engine()
    from .wasmtime import WasmtimeEngine

    return WasmtimeEngine()
