"""The engines inside the browser (and wherever else Pyodide runs): kernels on the interpreter's own memory, operands read in place.

A call packs five addresses into a prepared block of the heap and makes one WebAssembly call. Scratch memory is a block that Python
owns, so the kernels need no stack and no allocator, and a heap that cannot grow is a MemoryError before anything is written.
No view of the heap is held: only addresses, which stay when the heap grows.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ...assets import read_asset
from ...errors import DeviceMemoryError, GemmError
from ..arguments import ADDRESSES, DONE, pack_arguments
from ..blocking import Blocking
from ..families import EngineTraits, Row, module_asset
from ..plan import Plan
from ..threads import MOST_THREADS, warn_of_one_thread
from . import Bound, Engine
from .copying import CopyingEngine, Room
from .host_memory import OwnedBlock, heap_view
from .interpreter_memory import find_memory, has_linker, link
from .worker_strips import bind_worker_strips
from .workers import WorkerPool

_PAGE = 1 << 16

# What blocking.py asks for at most is about 5.2 MiB, but for a very deep single panel; a call that needs more than this gives its
# block back when it is done.
KEEP_SCRATCH_BYTES = 8 << 20


def make_browser_engine(pyodide: Pyodide | None = None) -> Engine:
    """The engine on the interpreter's memory; where that memory cannot be reached, the one that copies."""
    pyodide = pyodide or Pyodide()
    memory = find_memory(pyodide.emscripten, pyodide.js)
    if memory is None and not has_linker(pyodide.emscripten):
        return BrowserCopyingEngine(pyodide, "Pyodide hides its memory and its linker")
    try:
        engine = BrowserEngine(pyodide, memory)
        engine.load("simd128")
    except pyodide.JsException as error:
        return BrowserCopyingEngine(pyodide, f"the kernels could not be put on Pyodide's memory: {error}")
    return engine


class Pyodide:
    """What is used of Pyodide and of JavaScript."""

    def __init__(self) -> None:
        self.js: Any = import_module("js")
        self.ffi: Any = import_module("pyodide.ffi")
        self.to_js: Any = self.ffi.to_js
        self.JsException: type[Exception] = self.ffi.JsException
        self.emscripten: Any = import_module("pyodide_js")._module
        self.version: str = import_module("pyodide").__version__

    def traits(self) -> EngineTraits:
        code = read_asset(module_asset("relaxed"))
        return EngineTraits("browser", bool(self.js.WebAssembly.validate(self.to_js(code))))

    def instantiate(self, code: bytes, memory: Any) -> Any:
        """The exports of a kernel module on `memory`."""
        imports = self.to_js({"env": {"memory": memory}}, dict_converter=self.js.Object.fromEntries)
        module = self.js.WebAssembly.Module.new(self.to_js(code))
        return self.js.WebAssembly.Instance.new(module, imports).exports


class BrowserEngine:
    """Kernels on the interpreter's memory."""

    zero_copy = True

    def __init__(self, pyodide: Pyodide, memory: Any | None) -> None:
        self._pyodide, self._memory = pyodide, memory
        self._exports: dict[str, Any] = {}
        self._scratch: OwnedBlock | None = None
        self._traits = pyodide.traits()
        self.workers = WorkerPool(pyodide)
        self._memory_trouble = ""

    @property
    def traits(self) -> EngineTraits:
        return self._traits

    @property
    def info(self) -> dict[str, str]:
        how = "through Pyodide's dynamic linker" if self._memory is None else "as the import env.memory"
        return {
            "engine": f"Pyodide {self._pyodide.version}",
            "memory": f"operands are read in place: the kernels run on the interpreter's memory, {how}",
        }

    def load(self, module: str) -> Any:
        """The exports of a module, loaded at first use."""
        exports = self._exports.get(module)
        if exports is None:
            code = read_asset(module_asset(module))
            if self._memory is None:
                exports = link(self._pyodide.emscripten, self._pyodide.js, self._pyodide.to_js, code, f"py_gemm_{module}")
            else:
                exports = self._pyodide.instantiate(code, self._memory)
            self._exports[module] = exports
        return exports

    def bind(self, row: Row, plan: Plan, blocking: Blocking) -> Bound:
        function = getattr(self.load(row.module), row.function)
        arguments = pack_arguments(plan, blocking)
        idle = [OwnedBlock.of(arguments)]  # a call in the middle of another, by a handler of a signal, has a block of its own
        needed, name = blocking.scratch_bytes, row.name
        pack_addresses = ADDRESSES.pack_into
        failure = self._pyodide.JsException

        def call(a: int, b: int, c: int, d: int, bias: int) -> int:
            scratch = self._scratch
            if scratch is None or scratch.nbytes < needed:
                scratch = self._grow_scratch(name, needed)
            block = idle.pop() if idle else OwnedBlock.of(arguments)
            pack_addresses(block.buffer, block.offset, a, b, c, d, bias)
            try:
                status = function(block.address, scratch.address)
            except failure as error:
                raise GemmError(f"{name}: {error}") from error
            finally:
                idle.append(block)
            if status != DONE:
                raise GemmError(f"{name}: the kernel module is of another version (status {status})")
            return 1

        return call

    def threads(self, wanted: int) -> tuple[int, str]:
        if self.workers.trouble:
            return 1, self.workers.trouble
        up = self.workers.count_up
        state = f"workers that are up: {up}" if up else "they start at the first large product"
        return min(wanted, MOST_THREADS), self._memory_trouble or f"workers on shared memory; {state}"

    async def threads_up(self, threads: int) -> None:
        if threads > 1:
            await self.workers.started(threads - 1)

    def bind_strips(self, row: Row, plan: Plan, blocking: Blocking, threads: int) -> Bound:
        return bind_worker_strips(self, row, plan, blocking, threads)

    def report_trouble(self, trouble: str) -> None:
        """Keep, for `info`, and say once why a product for several threads runs on one."""
        if not self._memory_trouble:
            warn_of_one_thread(trouble)
        self._memory_trouble = trouble

    def forget_scratch(self) -> None:
        """Give the scratch memory back to the interpreter; the next call asks for it again."""
        self._scratch = None

    def _grow_scratch(self, name: str, nbytes: int) -> OwnedBlock:
        self.forget_scratch()
        try:
            scratch = OwnedBlock(nbytes)
        except MemoryError as error:
            raise DeviceMemoryError(
                f"{name}: the interpreter's memory has no room for {nbytes} bytes of packed operands"
            ) from error
        if nbytes <= KEEP_SCRATCH_BYTES:
            self._scratch = scratch
        return scratch


class BrowserCopyingEngine(CopyingEngine):
    """Kernels on memories of their own, for a Pyodide whose memory cannot be reached."""

    def __init__(self, pyodide: Pyodide, reason: str) -> None:
        super().__init__()
        self._pyodide, self._reason = pyodide, reason
        self._traits = pyodide.traits()

    @property
    def traits(self) -> EngineTraits:
        return self._traits

    @property
    def info(self) -> dict[str, str]:
        return {
            "engine": f"Pyodide {self._pyodide.version}",
            "memory": f"operands are copied into a memory of its own: {self._reason}",
        }

    def threads(self, wanted: int) -> tuple[int, str]:
        return min(wanted, 1), "workers could not read a memory of the engine's own"

    def make_room(self, module: str) -> Room:
        return _BrowserRoom(self._pyodide, read_asset(module_asset(module)))


class _BrowserRoom(Room):
    """One WebAssembly.Memory and one instance."""

    def __init__(self, pyodide: Pyodide, code: bytes) -> None:
        self._pyodide, self._new_view = pyodide, pyodide.js.Uint8Array.new
        limits = pyodide.to_js({"initial": 1}, dict_converter=pyodide.js.Object.fromEntries)
        try:
            self._memory = pyodide.js.WebAssembly.Memory.new(limits)
            self._exports = pyodide.instantiate(code, self._memory)
        except pyodide.JsException as error:
            raise DeviceMemoryError(f"WebAssembly cannot make a memory for the kernels: {error}") from error
        self.nbytes = _PAGE

    def grow(self, nbytes: int) -> None:
        try:
            self._memory.grow(-(-(nbytes - self.nbytes) // _PAGE))
        except self._pyodide.JsException as error:
            raise DeviceMemoryError(f"WebAssembly cannot grow a memory from {self.nbytes} to {nbytes} bytes: {error}") from error
        self.nbytes = self._memory.buffer.byteLength

    def copy_in(self, into: int, address: int, nbytes: int) -> None:
        self._new_view(self._memory.buffer, into, nbytes).assign(heap_view(address, nbytes))

    def copy_out(self, address: int, source: int, nbytes: int) -> None:
        self._new_view(self._memory.buffer, source, nbytes).assign_to(heap_view(address, nbytes))

    def run(self, name: str, block: int, scratch: int) -> None:
        try:
            status = getattr(self._exports, name)(block, scratch)
        except self._pyodide.JsException as error:
            raise GemmError(f"{name}: {error}") from error
        if status != DONE:
            raise GemmError(f"{name}: the kernel module is of another version (status {status})")

    def close(self) -> None:
        self._memory = self._exports = None
