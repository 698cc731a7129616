"""The engine outside the browser: wasmtime. Operands are copied into its memory and the result out of it, by memmove.

One module, store and memory for each token, made at first use. A kernel is called through wasmtime's unchecked call (2 us; the
ordinary one of wasmtime-py builds its types anew each time and takes 40 to 160 us).
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ...assets import read_asset
from ...errors import DeviceMemoryError, GemmError, UnsupportedError
from ..arguments import DONE
from ..families import ROWS, EngineTraits, Row
from .copying import KEEP_BYTES, CopyingEngine
from .module_cache import ModuleCache

_PAGE = 1 << 16


@dataclass(slots=True)
class _Room:
    """An instance of a module with a memory of its own."""

    store: Any
    memory: Any
    instance: Any
    base: int = 0
    nbytes: int = 0
    functions: dict[str, Any] = field(default_factory=dict)


class WasmtimeEngine(CopyingEngine):
    """relaxed_simd=False: as if wasmtime had none. memory_limit: bytes each memory may reach. cache_folder: for compiled modules.

    UnsupportedError where the package wasmtime is not installed or lacks what is used here.
    """

    def __init__(self, *, relaxed_simd: bool = True, memory_limit: int | None = None, cache_folder: Path | None = None) -> None:
        super().__init__()
        try:
            import wasmtime
            from wasmtime import _bindings
        except ImportError as error:
            raise UnsupportedError(
                f"outside the browser the CPU kernels run in wasmtime, which cannot be imported ({error}): pip install wasmtime"
            ) from error
        self._wasmtime: Any = wasmtime
        self._call = _bindings.wasmtime_func_call_unchecked
        self._bindings: Any = _bindings
        self._memory_limit = memory_limit
        config = wasmtime.Config()
        config.wasm_simd = True
        config.wasm_relaxed_simd = relaxed_simd
        self._engine = wasmtime.Engine(config)
        self._version = version("wasmtime")
        self._cache = ModuleCache(f"wasmtime-{self._version}-{'relaxed' if relaxed_simd else 'plain'}", cache_folder)
        self._modules: dict[str, Any] = {}
        self._rooms: dict[str, _Room] = {}
        self._traits = EngineTraits("wasmtime", self._accepts_relaxed_simd())

    @property
    def traits(self) -> EngineTraits:
        return self._traits

    @property
    def info(self) -> dict[str, str]:
        return {
            "engine": f"wasmtime {self._version}",
            "memory": "operands are copied into a memory of its own",
            "cache": self._cache.state,
        }

    def reserve(self, row: Row, nbytes: int) -> None:
        room = self._rooms.get(row.module) or self._make_room(row)
        if room.nbytes >= nbytes:
            return
        pages = -(-(nbytes - room.nbytes) // _PAGE)
        try:
            room.memory.grow(room.store, pages)
        except self._wasmtime.WasmtimeError as error:
            raise DeviceMemoryError(f"{row.name}: wasmtime cannot grow its memory to {nbytes} bytes: {error}") from error
        self._measure(room)

    def give_back(self, row: Row) -> None:
        room = self._rooms.get(row.module)
        if room and room.nbytes > KEEP_BYTES:
            del self._rooms[row.module]
            room.store.close()

    def copy_in(self, row: Row, into: int, address: int, nbytes: int) -> None:
        ctypes.memmove(self._rooms[row.module].base + into, address, nbytes)

    def copy_out(self, row: Row, address: int, source: int, nbytes: int) -> None:
        ctypes.memmove(address, self._rooms[row.module].base + source, nbytes)

    def run(self, row: Row, block: int, scratch: int) -> None:
        room = self._rooms[row.module]
        function = room.functions.get(row.name)
        if function is None:
            function = room.functions[row.name] = room.instance.exports(room.store)[row.name]._func
        values = (self._bindings.wasmtime_val_raw_t * 2)()
        values[0].i32 = block
        values[1].i32 = scratch
        trap = ctypes.POINTER(self._bindings.wasm_trap_t)()
        error = self._call(room.store._context(), ctypes.byref(function), values, 2, ctypes.byref(trap))
        if error:
            raise GemmError(f"{row.name}: {self._wasmtime.WasmtimeError._from_ptr(error)}")
        if trap:
            raise GemmError(f"{row.name}: {self._wasmtime.Trap._from_ptr(trap)}")
        if values[0].i32 != DONE:
            raise GemmError(f"{row.name}: the kernel module is of another version (status {values[0].i32})")

    def memory_bytes(self) -> int:
        """How much memory all tokens together hold now."""
        return sum(room.nbytes for room in self._rooms.values())

    def _accepts_relaxed_simd(self) -> bool:
        try:
            self._wasmtime.Module.validate(self._engine, read_asset(next(row.module for row in ROWS if row.token == "relaxed")))
        except self._wasmtime.WasmtimeError:
            return False
        return True

    def _module(self, row: Row) -> Any:
        module = self._modules.get(row.module)
        if module is None:
            code = read_asset(row.module)
            compiled = self._cache.load(code)
            if compiled is not None:
                try:
                    module = self._wasmtime.Module.deserialize(self._engine, compiled)
                except self._wasmtime.WasmtimeError:
                    compiled = None  # made with other settings: compile and replace it
            if compiled is None:
                module = self._wasmtime.Module(self._engine, code)
                self._cache.store(code, lambda: bytes(module.serialize()))
            self._modules[row.module] = module
        return module

    def _make_room(self, row: Row) -> _Room:
        wasmtime = self._wasmtime
        store = wasmtime.Store(self._engine)
        if self._memory_limit is not None:
            store.set_limits(memory_size=self._memory_limit)
        try:
            memory = wasmtime.Memory(store, wasmtime.MemoryType(wasmtime.Limits(1, None)))
            instance = wasmtime.Instance(store, self._module(row), [memory])
        except wasmtime.WasmtimeError as error:
            raise DeviceMemoryError(f"{row.name}: wasmtime cannot make a memory: {error}") from error
        room = _Room(store, memory, instance)
        self._measure(room)
        self._rooms[row.module] = room
        return room

    def _measure(self, room: _Room) -> None:
        room.base = ctypes.addressof(room.memory.data_ptr(room.store).contents)
        room.nbytes = room.memory.data_len(room.store)
