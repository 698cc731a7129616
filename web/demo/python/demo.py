"""The Python half of the demo page: holds A, B and D, and answers the page's worker. One Session a page.

Answers are plain data (numbers, texts, flat float32 arrays); matrices stay here. A fault that a person can mend comes back as
{"error": words}, never as an exception; any other exception is a defect and is let through.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

import js
import numpy as np
from pyodide.ffi import to_js

import demo_matrices as matrices
import demo_measure as measure
import py_gemm as pg
from demo_console import Console
from demo_matrices import Matrix, MatrixError

Answer = dict[str, Any]
# With "auto", NumPy is timed where its own few-row estimate stays below this.
NUMPY_PATIENCE_S = 5.0
# What py_gemm raises for a product that this device, or this memory, cannot make.
FAULTS = (pg.GemmError, TypeError, ValueError, MemoryError)


def _plain(value: object) -> Any:
    return to_js(value, dict_converter=js.Object.fromEntries)


class Session:
    """The matrices of the page and the verbs on them.

    `post(kind, data)` tells the page what happens in between; `stopped()` says whether somebody wants a run to end.
    """

    def __init__(self, post: Callable[[str, Any], None], stopped: Callable[[], bool]) -> None:
        self._post = post
        self._stopped = stopped
        self._operands: dict[str, Matrix] = {}
        self._result: Matrix | None = None
        self._reference: measure.Reference | None = None
        self._gpu: Any = None
        self._no_gpu = ""
        self.console = Console(
            {"__name__": "__console__", "pg": pg, "np": np, "A": None, "B": None, "D": None, "check": self.check},
            lambda kind, text: post("output", _plain({"kind": kind, "text": text})),
        )

    async def start(self) -> Any:
        """Asks for the GPU; versions, adapter (or why there is none) and py_gemm's own report."""
        await self._request_gpu()
        info = {} if self._gpu is None else {key: str(value) for key, value in dict(self._gpu.info).items()}
        return _plain(
            {
                "python": platform.python_version(),
                "numpy": np.__version__,
                "py_gemm": pg.__version__,
                "gpu": self._gpu is not None,
                "no_gpu": self._no_gpu,
                "adapter": " ".join(info[key] for key in ("vendor", "architecture", "device") if info.get(key)),
                "description": info.get("description", ""),
                "info": str(pg.info()),
            }
        )

    async def _request_gpu(self) -> None:
        try:
            self._gpu = await pg.request_device_async("webgpu")
        except pg.GemmError as error:
            self._gpu, self._no_gpu = None, str(error)

    def generate(self, side: str, rows: int, columns: int, name: str, seed: int, distribution: str) -> Any:
        """Makes a random operand; `side` is "A" or "B"."""
        return self._take(side, lambda: matrices.generate(side, rows, columns, name, seed, distribution))

    def read(self, side: str, file_name: str, data: Any, wanted: str) -> Any:
        """Reads an operand from the bytes of a file (a Uint8Array)."""
        content = data.to_bytes()
        return self._take(side, lambda: matrices.read(file_name, content, wanted))

    def _take(self, side: str, make: Callable[[], Matrix]) -> Any:
        self._operands.pop(side, None)
        self._reference = self._result = None
        self.console.namespace[side] = self.console.namespace["D"] = None
        try:
            matrix = make()
        except MatrixError as error:
            return _plain({"error": str(error)})
        except MemoryError:
            return _plain({"error": "There is not enough memory for this matrix in the browser."})
        self._operands[side] = matrix
        self.console.namespace[side] = _read_only(matrix)
        return _plain({**matrix.summary(), "picture": matrices.picture(matrix)})

    async def run(self, device: str, mode: str, numpy: str) -> Any:
        """Times the product on every device, measures its errors and keeps D of the chosen device.

        device: "best", "gpu" or "cpu"; mode: "fast", "deterministic" or "exact"; numpy: "auto", "always" or "never".
        """
        try:
            return _plain(await self._run(self._operands["A"], self._operands["B"], device, mode, numpy))
        except measure.StoppedError:
            return _plain({"error": "Stopped.", "at": "run"})
        except MemoryError:
            return _plain({"error": "There is not enough memory for this product in the browser.", "at": "run"})

    async def _run(self, a: Matrix, b: Matrix, device: str, mode: str, numpy: str) -> Answer:
        fault = _fault_of_pair(a, b)
        if fault:
            return {"error": fault, "at": "sizes"}
        self._result = None
        if self._gpu is None or self._gpu.lost:
            await self._request_gpu()
        results: dict[str, Matrix] = {}
        lanes = {
            "gpu": await self._gpu_lane(a, b, mode, results),
            "cpu": await self._own_lane("cpu", "cpu", a, b, mode, results),
            "numpy": await self._numpy_lane(a, b, numpy, results),
        }
        chosen = device if device != "best" else await self._best(a, b, mode, results)
        if chosen not in results:
            return {"error": lanes[chosen]["reason"], "at": "device", "lanes": list(lanes.values())}
        self._stage("Computing the reference")
        self._reference = measure.make_reference(a, b, mode)
        self._stage("Measuring errors")
        errors = {name: measure.errors_of(result, self._reference) for name, result in results.items()}
        for name, each in errors.items():
            lanes[name].update(measure.largest(each, self._reference))
        result = self._result = results[chosen]
        self.console.namespace["D"] = _read_only(result)
        return {
            "chosen": chosen,
            "asked": device,
            "mode": mode,
            "lanes": list(lanes.values()),
            "summary": result.summary(),
            "picture": matrices.picture_of_extremes(result),
            "corner": matrices.corner(result),
            "errors": measure.describe(errors[chosen], result, self._reference),
        }

    async def _best(self, a: Matrix, b: Matrix, mode: str, results: dict[str, Matrix]) -> str:
        """Leaves the choice to py_gemm; the lane it took, whose result is now the one of that call."""
        values = np.asarray(await pg.gemm_async(a.values, b.values, mode=mode, **measure.type_arguments(a, b)))
        report = pg.last_run()
        chosen = "cpu" if report is None or report.device == "cpu" else "gpu"
        results[chosen] = Matrix(values, measure.result_type(a, b))
        return chosen

    def _proceed(self) -> None:
        if self._stopped():
            raise measure.StoppedError

    def _stage(self, text: str) -> None:
        self._proceed()
        self._post("stage", text)

    async def _gpu_lane(self, a: Matrix, b: Matrix, mode: str, results: dict[str, Matrix]) -> Answer:
        if self._gpu is None:
            return self._tell({"lane": "gpu", "state": "absent", "reason": self._no_gpu})
        return await self._own_lane("gpu", self._gpu, a, b, mode, results)

    async def _own_lane(self, lane: str, device: Any, a: Matrix, b: Matrix, mode: str, results: dict[str, Matrix]) -> Answer:
        self._tell({"lane": lane, "state": "measuring"})
        try:
            results[lane], timing, report = await measure.time_product(a, b, device, mode, self._proceed)
        except FAULTS as error:
            return self._tell({"lane": lane, "state": "failed", "reason": str(error)})
        return self._tell({"lane": lane, "state": "done", **_report(report), **_speed(timing, a, b)})

    async def _numpy_lane(self, a: Matrix, b: Matrix, wish: str, results: dict[str, Matrix]) -> Answer:
        if wish == "never":
            return self._tell({"lane": "numpy", "state": "skipped", "reason": "Not asked for."})
        estimate = measure.estimate_numpy(a, b)
        if wish == "auto" and estimate > NUMPY_PATIENCE_S:
            time = f"{estimate:.0f} seconds" if estimate < 120 else f"{estimate / 60:.0f} minutes"
            reason = f"NumPy would take about {time} here."
            return self._tell({"lane": "numpy", "state": "skipped", "reason": reason, "estimate": estimate})
        self._tell({"lane": "numpy", "state": "measuring", "estimate": estimate})
        results["numpy"], timing = await measure.time_numpy(a, b, self._proceed)
        as_float32 = "bfloat16" in (a.type, b.type)
        variant = f"matmul on {'float32 (NumPy has no bfloat16)' if as_float32 else measure.result_type(a, b)}"
        return self._tell(
            {"lane": "numpy", "state": "done", "adapter": f"NumPy {np.__version__}", "variant": variant, **_speed(timing, a, b)}
        )

    def _tell(self, lane: Answer) -> Answer:
        self._post("lane", _plain(lane))
        return lane

    def save(self) -> Any:
        """The bytes of D as .npy (a Uint8Array)."""
        if self._result is None:
            return _plain({"error": "There is no result yet."})
        return to_js(matrices.to_npy(self._result))

    def check(self, x: Any) -> str:
        """Draws the errors of the array x against the reference of A · B, as for D; returns the largest in words.

        x has the shape of D; uint16 bits count as bfloat16 where D is bfloat16.
        """
        if self._reference is None or self._result is None:
            raise MatrixError("Run the product first: check() compares with its reference.")
        values = np.asarray(x)
        if values.shape != self._result.shape:
            raise MatrixError(f"check() wants the shape of D, {self._result.shape}; this is {values.shape}.")
        bits = self._result.type == "bfloat16" and values.dtype == np.uint16
        matrix = Matrix(values, "bfloat16" if bits else values.dtype.name)
        errors = measure.errors_of(matrix, self._reference)
        told = measure.describe(errors, matrix, self._reference)
        self._post("check", _plain(told))
        return f"largest error {told['error']:.3g} at row {told['row']}, column {told['column']}"

    async def execute(self, code: str, as_it_is: bool) -> Any:
        """Runs what was typed in the console: {"more": True} where it is only a beginning, else {"ok": whether it ran through}.

        as_it_is: run it even where it seems to be only a beginning.
        """
        if not as_it_is and self.console.wants_more(code):
            return _plain({"more": True})
        return _plain({"ok": await self.console.run(code, lambda: self._post("began", code))})


def _read_only(matrix: Matrix) -> Any:
    """The console sees the page's own memory; writing there would leave pictures and reference behind."""
    view = matrix.values.view()
    view.flags.writeable = False
    return view


def _fault_of_pair(a: Matrix, b: Matrix) -> str:
    if a.shape[1] != b.shape[0]:
        return f"A has {a.shape[1]:,} columns and B has {b.shape[0]:,} rows; for A · B the two must be equal."
    if a.shape[0] * b.shape[1] > matrices.MOST_ELEMENTS:
        return f"D would be {a.shape[0]:,} × {b.shape[1]:,}; this page holds at most {matrices.MOST_ELEMENTS:,} elements a matrix."
    return ""


def _report(report: pg.RunReport | None) -> Answer:
    if report is None:
        return {}
    seconds = report.gpu_seconds
    return {
        "adapter": str(report.adapter),
        "variant": str(report.variant),
        "gpu_seconds": None if seconds is None else float(seconds),
    }


def _speed(timing: measure.Timing, a: Matrix, b: Matrix) -> Answer:
    return {
        "first": timing.first,
        "seconds": timing.median,
        "samples": timing.samples,
        "gflops": measure.flops(a, b) / timing.median / 1e9,
    }
