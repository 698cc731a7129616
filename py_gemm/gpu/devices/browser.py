"""The browser's device: WebGPU through web/bridge.js, from Pyodide in a page or a worker. Imports no NumPy.

The bridge is the module `py_gemm_bridge` where the page has registered one (a page whose Content-Security-Policy forbids other
ways must); else it is loaded from the package's own text. A job crosses once, as a line of JSON and the operands' proxies.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable
from typing import Any

from ...assets import read_asset
from ...errors import DeviceLostError, DeviceMemoryError, GemmError, ShapeError, SyncUnavailableError, UnsupportedError
from ..capabilities import Capabilities, Limits, looks_like_software
from ..device import Buffer, Device, Dispatch, Job, Pending
from ..pool import Allocation
from ..shaders import ShaderKey, assemble

_ERRORS: dict[str, type[GemmError]] = {
    "validation": GemmError,
    "internal": GemmError,
    "out-of-memory": DeviceMemoryError,
    "lost": DeviceLostError,
    "unsupported": UnsupportedError,
}

_TWO_LINES = """\
import * as bridge from "./bridge.js";
pyodide.registerJsModule("py_gemm_bridge", bridge);"""


async def request_browser_device() -> BrowserDevice:
    """The browser's high-performance adapter as a device. UnsupportedError says why there is none."""
    bridge = await _load_bridge()
    try:
        return BrowserDevice(await bridge.Bridge.request())
    except _js_exception() as error:
        raise _translate(error) from None


async def _load_bridge() -> Any:
    try:
        import py_gemm_bridge
    except ImportError:
        return await _import_text(read_asset("web/bridge.js").decode())
    return py_gemm_bridge


async def _import_text(text: str) -> Any:
    """A JS module from its text: through a Blob URL, or a data URL where Blobs cannot be imported (Node)."""
    import js
    from pyodide.code import run_js
    from pyodide.ffi import to_js

    url = js.URL.createObjectURL(
        js.Blob.new(to_js([text]), to_js({"type": "text/javascript"}, dict_converter=js.Object.fromEntries))
    )
    try:
        load = run_js(
            "(url, text) => import(url).catch((refused) => "
            "import('data:text/javascript,' + encodeURIComponent(text)).catch(() => { throw refused; }))"
        )
        return await load(url, text)
    except _js_exception() as error:
        raise UnsupportedError(
            f"py_gemm cannot load its bridge to WebGPU in this page ({_words(error)}). Where a Content-Security-Policy forbids it, "
            f"serve bridge.js from the page's own origin and add, before the first use of a GPU, these two lines:\n{_TWO_LINES}"
        ) from None
    finally:
        js.URL.revokeObjectURL(url)


class BrowserDevice(Device):
    """A GPUDevice behind the bridge."""

    kind = "webgpu"

    def __init__(self, bridge: Any) -> None:
        super().__init__()
        self._bridge = bridge
        # Bound once: looking a method up on a proxy costs as much as calling it.
        self._js_execute = bridge.execute
        self._js_record = bridge.record
        facts = json.loads(bridge.describe())
        self.info = {name: str(value or "") for name, value in facts["info"].items()}
        self.limits = {name: int(value) for name, value in facts["limits"].items()}
        self.capabilities = Capabilities(
            backend="webgpu",
            adapter=" ".join(dict.fromkeys(filter(None, self.info.values()))) or "an adapter without a name",
            is_software=facts["fallback"] or looks_like_software(self.info.values()),
            limits=Limits.of(self.limits),
            features=frozenset(facts["features"]),
            language_features=frozenset(facts["language_features"]),
        )
        self._shader_numbers: dict[ShaderKey, int] = {}

    @property
    def handle(self) -> Any:
        return self._bridge.device

    @property
    def lost(self) -> str | None:
        reason = self._bridge.lost
        return reason if isinstance(reason, str) else None

    def can_wait(self) -> bool:
        from pyodide.ffi import can_run_sync

        return bool(can_run_sync())

    def counts(self) -> dict[str, int]:
        return dict(json.loads(self._bridge.counts()))

    def destroy(self) -> None:
        self._pool.clear()
        self._bridge.destroy()

    # Work

    def create_encoder(self) -> Any:
        self.require_alive()
        return self._bridge.device.createCommandEncoder()

    def submit(self, encoder: Any) -> None:
        self._call(self._bridge.submit, encoder)

    def record(self, encoder: Any, dispatches: tuple[Dispatch, ...]) -> None:
        self._call(self._js_record, encoder, f"[{self._spell(dispatches)}]")

    def release_bindings(self, shader: ShaderKey) -> None:
        number = self._shader_numbers.get(shader)
        if number is not None:
            self._bridge.releaseBindings(number)

    def execute(self, job: Job) -> Pending:
        uploads = ",".join([f"[{buffer.number},0]" for buffer, _ in job.uploads])
        reads = ",".join([f"[{buffer.number},{offset},{nbytes}]" for buffer, offset, nbytes, _ in job.reads])
        timed = ',"t":1' if job.timed else ""
        text = f'{{"u":[{uploads}],"d":[{self._spell(job.dispatches)}],"r":[{reads}]{timed}}}'
        promise = self._call(self._js_execute, text, *_proxies([data for _, data in job.uploads] + [read[3] for read in job.reads]))
        return _Waiting(self, promise)

    def _spell(self, dispatches: Iterable[Dispatch]) -> str:
        return ",".join(
            [
                f"[{self._number(each.shader)},[{_spell_buffers(each)}],"
                f'"{each.parameters.hex()}",'
                f"{each.workgroups[0]},{each.workgroups[1]},{each.workgroups[2]}]"
                for each in dispatches
            ]
        )

    def _number(self, key: ShaderKey) -> int:
        number = self._shader_numbers.get(key)
        if number is None:
            number = self._shader_numbers[key] = int(self._bridge.define(key.label, assemble(key), " ".join(key.bindings)))
        return number

    def _compile(self, shaders: list[ShaderKey]) -> Pending:
        promise = self._call(self._bridge.prepare, " ".join(str(self._number(key)) for key in shaders))
        return _Waiting(self, promise, lambda: self._ready.update(shaders))

    # What lasts

    async def remember(self, key: str, value: str) -> None:
        """Keep a word for later visits to this origin."""
        try:
            await self._bridge.remember(key, value)
        except _js_exception() as error:
            raise OSError(f"the browser keeps nothing here: {_words(error)}") from None

    async def recall(self, key: str) -> str | None:
        """What was kept, or None; also where the browser keeps nothing (a private window, a sandboxed frame, Node)."""
        found = await self._bridge.recall(key)
        return found if isinstance(found, str) else None

    # Buffers

    def _allocate(self, capacity: int) -> Allocation:
        return Allocation(capacity, int(self._call(self._bridge.createBuffer, capacity)))

    def _adopt(self, handle: Any) -> Buffer:
        size = getattr(handle, "size", None)
        if not isinstance(size, int):
            raise TypeError(f"a Buffer or a GPUBuffer is expected, not {type(handle).__name__}")
        number = int(self._bridge.adopt(handle))
        return Buffer(self, Allocation(size, number, handle), size // 4 * 4, owned=False)

    def _handle_of(self, allocation: Allocation) -> Any:
        return self._bridge.buffer(allocation.number)

    def _destroy(self, allocation: Allocation) -> None:
        self._bridge.destroyBuffer(allocation.number)

    def _upload(self, buffer: Buffer, data: Any, offset: int) -> None:
        self._call(self._js_execute, f'{{"u":[[{buffer.number},{offset}]],"d":[],"r":[]}}', *_proxies([data]))

    # Errors

    def _call(self, function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except _js_exception() as error:
            raise self.translate(error) from None

    def translate(self, error: Any) -> GemmError:
        """What the bridge threw as one of ours."""
        translated = _translate(error)
        if isinstance(translated, DeviceMemoryError):
            self.distrust_memory()
        return translated

    def seconds(self, ticket: float) -> Any:
        """What a job took on the device, -1 while that is not known."""
        return self._bridge.seconds(ticket)

    def settle(self) -> Any:
        """A promise that all submitted work is done; rejects with what failed."""
        return self._call(self._bridge.settle)


class _Waiting(Pending):
    """Waits for a promise of the bridge; without one, for everything submitted so far, asked for only when somebody waits."""

    def __init__(self, device: BrowserDevice, promise: Any, then: Any = None) -> None:
        self._device = device
        # A job that brings nothing back is named by a number, under which its time can be asked for later.
        self._ticket = promise if isinstance(promise, int | float) else None
        self._promise = None if self._ticket is not None else promise
        self._then = then
        self._seconds: float | None = None

    @property
    def gpu_seconds(self) -> float | None:  # type: ignore[override]  # may arrive with another job
        if self._seconds is None and self._ticket is not None:
            self._take(self._device.seconds(self._ticket))
        return self._seconds

    def wait(self) -> None:
        if self.done:
            return
        from pyodide.ffi import run_sync

        if not self._device.can_wait():
            raise SyncUnavailableError(
                "this call would have to wait for the GPU, and this entry into Python cannot wait "
                "(pyodide.ffi.can_run_sync() is false); write `await` and the _async name of the function instead"
            )
        try:
            self._finish(run_sync(self._start()))
        except _js_exception() as error:
            raise self._device.translate(error) from None

    def __await__(self) -> Generator[Any, Any, None]:
        if self.done:
            return
        try:
            self._finish((yield from self._start().__await__()))
        except _js_exception() as error:
            raise self._device.translate(error) from None

    def _start(self) -> Any:
        return self._device.settle() if self._promise is None else self._promise

    def _finish(self, seconds: Any) -> None:
        self.done = True
        self._take(seconds)
        if self._then is not None:
            self._then()

    def _take(self, seconds: Any) -> None:
        if isinstance(seconds, int | float) and seconds >= 0:
            self._seconds = float(seconds)


def _spell_buffers(dispatch: Dispatch) -> str:
    """Numbers, or [number, first byte, bytes] where part of a buffer is bound."""
    if not dispatch.windows:
        return ",".join([str(buffer.number) for buffer in dispatch.buffers])
    return ",".join(
        [
            str(buffer.number) if window is None else f"[{buffer.number},{window[0]},{window[1]}]"
            for buffer, window in zip(dispatch.buffers, dispatch.windows, strict=True)
        ]
    )


def _proxies(data: list[Any]) -> list[Any]:
    """Proxies that the bridge destroys when it is done with them."""
    from pyodide.ffi import create_proxy

    for each in data:
        if not memoryview(each).c_contiguous:
            raise ShapeError("device data must be C-contiguous")
    return [create_proxy(each) for each in data]


def _js_exception() -> Any:
    from pyodide.ffi import JsException

    return JsException


def _words(error: Any) -> str:
    return str(getattr(error, "message", None) or error)


def _translate(error: Any) -> GemmError:
    kind = getattr(error, "kind", None)
    return _ERRORS.get(kind if isinstance(kind, str) else "", GemmError)(_words(error))
