"""The engine outside the browser: wasmtime. Operands are copied into its memory and the result out of it, by memmove.

A kernel is called through wasmtime's unchecked call (2 us; the
ordinary one of wasmtime-py builds its types anew each time and takes 40 to 160 us).
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ...assets import read_asset
from ...errors import DeviceMemoryError, GemmError, UnsupportedError
from ..arguments import DONE
from ..families import EngineTraits, module_asset
from ..threads import MOST_THREADS
from .copying import CopyingEngine, Room
from .module_cache import ModuleCache

_PAGE = 1 << 16


class _WasmtimeRoom(Room):
    """A store with one memory and one instance."""

    def __init__(self, wasmtime: Any, bindings: Any, store: Any, memory: Any, instance: Any) -> None:
        self._wasmtime, self._bindings = wasmtime, bindings
        self._store, self._memory, self._instance = store, memory, instance
        self._functions: dict[str, Any] = {}
        self._values = (bindings.wasmtime_val_raw_t * 2)()
        self._measure()

    def grow(self, nbytes: int) -> None:
        try:
            self._memory.grow(self._store, -(-(nbytes - self.nbytes) // _PAGE))
        except self._wasmtime.WasmtimeError as error:
            raise DeviceMemoryError(f"wasmtime cannot grow a memory from {self.nbytes} to {nbytes} bytes: {error}") from error
        self._measure()

    def copy_in(self, into: int, address: int, nbytes: int) -> None:
        ctypes.memmove(self._base + into, address, nbytes)

    def copy_out(self, address: int, source: int, nbytes: int) -> None:
        ctypes.memmove(address, self._base + source, nbytes)

    def run(self, name: str, block: int, scratch: int) -> None:
        function = self._functions.get(name)
        if function is None:
            function = self._functions[name] = self._instance.exports(self._store)[name]._func
        values = self._values
        values[0].i32 = block
        values[1].i32 = scratch
        trap = ctypes.POINTER(self._bindings.wasm_trap_t)()
        error = self._bindings.wasmtime_func_call_unchecked(
            self._store._context(), ctypes.byref(function), values, 2, ctypes.byref(trap)
        )
        if bool(error):
            raise GemmError(f"{name}: {self._wasmtime.WasmtimeError._from_ptr(error)}")
        if trap:
            raise GemmError(f"{name}: {self._wasmtime.Trap._from_ptr(trap)}")
        if values[0].i32 != DONE:
            raise GemmError(f"{name}: the kernel module is of another version (status {values[0].i32})")

    def close(self) -> None:
        self._store.close()

    def _measure(self) -> None:
        self._base = ctypes.addressof(self._memory.data_ptr(self._store).contents)
        self.nbytes = self._memory.data_len(self._store)


def _close(
    stop_threads: Callable[[], object], rooms: dict[tuple[str, int, int], Room], modules: dict[str, Any], engine: Any
) -> None:
    stop_threads()
    for closable in (*rooms.values(), *modules.values(), engine):
        closable.close()


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
                f"outside the browser the CPU kernels run in wasmtime, which cannot be imported ({error}): "
                "pip install 'py_gemm[native]'"
            ) from error
        self._wasmtime: Any = wasmtime
        self._bindings: Any = _bindings
        self._memory_limit = memory_limit
        config = wasmtime.Config()
        config.wasm_simd = True
        config.wasm_relaxed_simd = relaxed_simd
        # Its threads would be missing in a forked child, which then waits for them for ever; the modules are small.
        config.parallel_compilation = False
        self._engine = wasmtime.Engine(config)
        self._version = version("wasmtime")
        self._cache = ModuleCache(f"wasmtime-{self._version}-{'relaxed' if relaxed_simd else 'plain'}", cache_folder)
        self._modules: dict[str, Any] = {}
        # In order, and while wasmtime is still whole: at the interpreter's exit its own destructors come too late and complain.
        weakref.finalize(self, _close, self.pool.stop, self._rooms, self._modules, self._engine)
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

    def threads(self, wanted: int) -> tuple[int, str]:
        return min(wanted, MOST_THREADS), self.thread_trouble or "threads of this process, each with a memory of its own"

    def make_room(self, module: str) -> Room:
        wasmtime = self._wasmtime
        store = wasmtime.Store(self._engine)
        if self._memory_limit is not None:
            store.set_limits(memory_size=self._memory_limit)
        try:
            memory = wasmtime.Memory(store, wasmtime.MemoryType(wasmtime.Limits(1, None)))
            instance = wasmtime.Instance(store, self._module(module), [memory])
        except wasmtime.WasmtimeError as error:
            raise DeviceMemoryError(f"wasmtime cannot make a memory for the kernels: {error}") from error
        return _WasmtimeRoom(wasmtime, self._bindings, store, memory, instance)

    def _accepts_relaxed_simd(self) -> bool:
        try:
            self._wasmtime.Module.validate(self._engine, read_asset(module_asset("relaxed")))
        except self._wasmtime.WasmtimeError:
            return False
        return True

    def _module(self, name: str) -> Any:
        module = self._modules.get(name)
        if module is None:
            code = read_asset(module_asset(name))
            compiled = self._cache.load(code)
            if compiled is not None:
                try:
                    module = self._wasmtime.Module.deserialize(self._engine, compiled)
                except self._wasmtime.WasmtimeError:
                    compiled = None  # made with other settings: compile and replace it
            if compiled is None:
                module = self._wasmtime.Module(self._engine, code)
                self._cache.store(code, lambda: bytes(module.serialize()))
            self._modules[name] = module
        return module
