"""Workers of a page as threads: started lazily, driven through words of a shared memory, never needing a turn of the event loop.

    shared memory:  words of the workers | modules and names of kernels | what a product puts there

The script is web/thread.js: from the address beside a registered bridge, else from the package's own text. A worker that does not
answer in time is taken for dead: then the whole pool goes, with its memory, and the next product starts another. Imports no NumPy.
"""

from __future__ import annotations

import asyncio
import struct
from time import perf_counter
from typing import Any

from ...assets import read_asset
from ...errors import DeviceMemoryError
from ..arguments import DONE as STATUS_DONE
from ..families import Row, module_asset
from ..kernels.wasm_module import with_shared_memory
from ..threads import MOST_THREADS, warn_of_one_thread

# web/thread.js: the words of a worker.
GO, DONE, UP, STATUS, _WORDS = 0, 1, 2, 3, 16
_WORK = struct.Struct("<7I")  # BLOCK, SCRATCH, CODE, LENGTH, MODULE, NAME, LETTERS
_WORK_AT = 4 * 4

_PAGE = 1 << 16
_WORDS_END = 4 * _WORDS * MOST_THREADS

# A quarter of what WebAssembly can address: more address space than this is refused on small machines. Float32 products up to
# about 8,192 cubed fit.
MOST_PAGES = 1 << 14

# A shared memory never shrinks: one that has grown past this goes after the call, with its workers.
KEEP_SHARED_BYTES = 256 << 20

# A worker that has not answered this long after the caller's own strip is done, and ten times as long as that took, is dead.
PATIENCE_SECONDS = 2.0
PATIENCE_FACTOR = 10
START_SECONDS = 10.0


class WorkerPool:
    """trouble: why there are no workers, now and later; empty where there is no reason. nbytes: of the shared memory; free: where
    a product's own part of it begins. at_work: whether a product has them; another one then does without.

    One product at a time, as Pyodide has one thread: reserve, copy, `give` work to each worker, `wait` for it.
    """

    def __init__(self, pyodide: Any) -> None:
        self._pyodide, self._js = pyodide, pyodide.js
        self.trouble = self._obstacle()
        self._in_page = bool(hasattr(self._js, "document"))
        self._workers: list[Any] = []
        create_proxy = pyodide.ffi.create_proxy
        self._heard, self._failed = create_proxy(self._hear), create_proxy(self._fail)
        self._blob = ""
        self._waiting: list[asyncio.Event] = []
        self._waited_in_vain = False
        self._memory: Any = None
        self.nbytes = 0
        self.at_work = False
        # Bound once: looking a method up on a proxy costs as much as calling it.
        self._new_view = self._js.Uint8Array.new
        if not self.trouble:
            atomics = self._js.Atomics
            self._load_word, self._add_word, self._notify_word = atomics.load, atomics.add, atomics.notify

    def _obstacle(self) -> str:
        if not hasattr(self._js, "Worker"):
            return "this JavaScript runtime has no Worker"
        if not getattr(self._js, "crossOriginIsolated", False):
            return (
                "the page is not cross-origin isolated (headers Cross-Origin-Opener-Policy and Cross-Origin-Embedder-Policy), "
                "so memory cannot be shared"
            )
        return ""

    # -- life ------------------------------------------------------------------------------------------------------------

    @property
    def count_up(self) -> int:
        """How many workers wait for work (the first ones: none is counted behind one that does not)."""
        for index in range(len(self._workers)):
            if self._load(index, UP) != 1:
                return index
        return len(self._workers)

    def start(self, count: int) -> bool:
        """Have `count` workers started; whether all of them wait for work already. Returns at once."""
        if self.trouble:
            return False
        if len(self._workers) < count:
            try:
                self._start_missing(count)
            except self._pyodide.JsException as error:
                self.stop()
                self._refuse(f"workers cannot be started: {error}")
                warn_of_one_thread(self.trouble)
                return False
        return self.count_up >= count

    async def started(self, count: int) -> None:
        """Return once `count` workers are up, or there is trouble, or they have had their time (which they get once)."""
        deadline = perf_counter() + START_SECONDS
        while not self.start(count) and not self.trouble and not self._waited_in_vain:
            event = asyncio.Event()
            self._waiting.append(event)
            try:
                await asyncio.wait_for(event.wait(), deadline - perf_counter())
            except TimeoutError:
                self._waited_in_vain = True

    def stop(self) -> None:
        """End all workers and drop the memory; the next product starts anew."""
        for index, worker in enumerate(self._workers):
            self._js.Atomics.store(self._words, _WORDS * index + UP, 0)
            self._wake_up(index)
            worker.terminate()
        self._workers, self._memory, self.nbytes = [], None, 0

    def _start_missing(self, count: int) -> None:
        if self._memory is None:
            limits = {"initial": -(-_WORDS_END // _PAGE), "maximum": MOST_PAGES, "shared": True}
            self._memory = self._js.WebAssembly.Memory.new(self._to_object(limits))
            self._measure()
            self._words = self._js.Int32Array.new(self._buffer, 0, _WORDS_END // 4)
            self._codes: dict[str, tuple[int, int, int]] = {}
            self._names: dict[str, tuple[int, int]] = {}
            self.free = _WORDS_END
        script = self._script()
        for index in range(len(self._workers), count):
            worker = self._js.Worker.new(script, self._to_object({"type": "module", "name": "py_gemm thread"}))
            worker.onmessage, worker.onerror = self._heard, self._failed
            worker.postMessage(self._to_object({"memory": self._memory, "index": index}))
            self._workers.append(worker)

    def _script(self) -> str:
        """The address of the script: beside a registered bridge of this origin, else that of a Blob."""
        try:
            import py_gemm_bridge

            address = getattr(py_gemm_bridge, "threadScript", None)
        except ImportError:
            address = None
        if address and self._js.URL.new(address).origin == self._js.location.origin:
            return str(address)
        if not self._blob:
            text = self._pyodide.to_js([read_asset("web/thread.js").decode()])
            self._blob = self._js.URL.createObjectURL(self._js.Blob.new(text, self._to_object({"type": "text/javascript"})))
        return self._blob

    def _to_object(self, members: dict[str, Any]) -> Any:
        return self._pyodide.to_js(members, dict_converter=self._js.Object.fromEntries)

    def _hear(self, event: Any) -> None:
        del event  # the only message: it is up
        self._wake()

    def _fail(self, event: Any) -> None:
        event.preventDefault()
        words = getattr(event, "message", None)
        self.stop()
        self._refuse(
            f"a worker failed: {words}"
            if words
            else "the page does not let workers start (Content-Security-Policy: worker-src must allow thread.js, or blob:)"
        )

    def _refuse(self, reason: str) -> None:
        self.trouble = reason
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for event in waiting:
            event.set()

    # -- memory ----------------------------------------------------------------------------------------------------------

    def place_kernel(self, row: Row) -> tuple[int, int, int, int, int]:
        """CODE, LENGTH, MODULE, NAME, LETTERS of a kernel, kept in the shared memory. DeviceMemoryError where there is no room."""
        if row.module not in self._codes:
            code = with_shared_memory(read_asset(module_asset(row.module)), MOST_PAGES)
            self._codes[row.module] = (*self._keep(code), len(self._codes))
        if row.function not in self._names:
            self._names[row.function] = self._keep(row.function.encode())
        return (*self._codes[row.module], *self._names[row.function])

    def _keep(self, content: bytes) -> tuple[int, int]:
        place = self.free
        self.reserve(place + len(content))
        self._view(place, len(content)).assign(content)
        self.free = -(-(place + len(content)) // 64) * 64
        return place, len(content)

    def reserve(self, nbytes: int) -> None:
        """Make the memory at least this large; DeviceMemoryError where it cannot be."""
        if self.nbytes >= nbytes:
            return
        try:
            self._memory.grow(-(-(nbytes - self.nbytes) // _PAGE))
        except self._pyodide.JsException as error:
            raise DeviceMemoryError(f"shared memory cannot grow from {self.nbytes} to {nbytes} bytes: {error}") from error
        self._measure()

    def _measure(self) -> None:
        self._buffer = self._memory.buffer
        self.nbytes = int(self._buffer.byteLength)

    def _view(self, place: int, nbytes: int) -> Any:
        return self._new_view(self._buffer, place, nbytes)

    def write(self, place: int, content: Any) -> None:
        """Bytes of Python at a place of the shared memory."""
        self._view(place, len(content)).assign(content)

    def read_into(self, place: int, into: Any) -> None:
        """From a place of the shared memory to bytes of Python."""
        self._view(place, len(into)).assign_to(into)

    # -- work ------------------------------------------------------------------------------------------------------------

    def give(self, index: int, kernel: tuple[int, int, int, int, int], block: int, scratch: int) -> None:
        """Let a worker run a kernel on the argument block and the scratch memory at these places."""
        self.write(4 * _WORDS * index + _WORK_AT, _WORK.pack(block, scratch, *kernel))
        self._wake_up(index)

    def _wake_up(self, index: int) -> None:
        self._add_word(self._words, _WORDS * index + GO, 1)
        self._notify_word(self._words, _WORDS * index + GO)

    def wait(self, count: int, took: float) -> bool:
        """Whether the first `count` workers get done; not where one fails or does not answer. took: seconds of the caller."""
        deadline = perf_counter() + PATIENCE_SECONDS + PATIENCE_FACTOR * took
        for index in range(count):
            wanted = self._load(index, GO)
            while (seen := self._load(index, DONE)) != wanted:
                left = deadline - perf_counter()
                if left <= 0:
                    return False
                if not self._in_page:  # a page may not wait, it has to look
                    self._js.Atomics.wait(self._words, _WORDS * index + DONE, seen, 1000 * left)
            if self._load(index, STATUS) != STATUS_DONE:
                self._refuse("a worker could not run a kernel (the console says why)")
                return False
        return True

    def _load(self, index: int, word: int) -> int:
        return int(self._load_word(self._words, _WORDS * index + word))
