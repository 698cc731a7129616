"""`info`: what py_gemm found on this machine, as aligned text and as plain data. Asks no device that was not asked before."""

from __future__ import annotations

import platform
import sys
from dataclasses import asdict
from typing import Any

import numpy as np

from py_gemm import devices
from py_gemm.configuration import KNOBS, knob
from py_gemm.errors import UnsupportedError


class Info:
    """Topics with their facts. `str()` and notebooks show aligned text, `to_dict()` gives plain data."""

    def __init__(self, topics: dict[str, dict[str, str]]) -> None:
        self._topics = topics

    def to_dict(self) -> dict[str, dict[str, str]]:
        return {topic: dict(facts) for topic, facts in self._topics.items()}

    def __repr__(self) -> str:
        width = max(len(name) for facts in self._topics.values() for name in facts)
        blocks = []
        for topic, facts in self._topics.items():
            blocks.append("\n".join([topic, *(f"  {name:<{width}}  {value}" for name, value in facts.items())]))
        return "\n".join(blocks)


def info() -> Info:
    """Versions, where Python runs, the CPU road, the GPU (if a device was requested) and the knobs in force."""
    from py_gemm._version import __version__

    topics: dict[str, dict[str, str]] = {
        "py_gemm": {"version": __version__, "numpy": np.__version__, "python": platform.python_version(), "platform": sys.platform},
        "cpu": _cpu(),
    }
    if devices.IN_BROWSER:
        topics["page"] = _page()
    gpu = devices.known_gpu()
    topics["gpu"] = _gpu(gpu) if gpu is not None else {"device": devices.gpu_state()}
    topics["knobs"] = {name: str(knob(name)) for name in KNOBS}
    return Info(topics)


def _cpu() -> dict[str, str]:
    try:
        return dict(devices.cpu_device().info)
    except UnsupportedError as error:
        return {"engine": f"none: {error}"}


def _page() -> dict[str, str]:
    import js
    from pyodide.ffi import can_run_sync

    return {
        "realm": "page" if hasattr(js, "document") else "worker",
        "cross_origin_isolated": str(bool(getattr(js, "crossOriginIsolated", False))),
        "can_wait_here": str(can_run_sync()),
    }


def _gpu(device: Any) -> dict[str, str]:
    can = device.capabilities
    told = {name: value for name, value in device.info.items() if value}
    facts = {
        "kind": device.kind,
        **told,
        "software": can.is_software,
        "nan_and_infinity_kept": can.nan_inf,
        "order_kept": can.order_kept,
        "float32_kernel": can.preferred or "tiled-64x64x16 (pg.tune() looks for a faster one)",
    }
    facts |= {"features": ", ".join(sorted(can.features | can.language_features)) or "none", **asdict(can.limits)}
    return {name: str(value) for name, value in facts.items()}
