"""For all tests: what must be there before the first one runs, sweeps that are whole or sampled, and Hypothesis without chance.

`npm test` finds or installs what the tests need; a bare `pytest` only names what is missing, and stops.
"""

from __future__ import annotations

import importlib.util
import os

import pytest
from hypothesis import HealthCheck, settings

from scripts import bundle, pytorch, vulkan
from scripts.browser import find_browser
from scripts.paths import NODE_MODULES

SOAK = os.environ.get("PY_GEMM_SOAK", "") not in ("", "0")

# One run equals the next: a failure that a person sees is the failure that CI saw.
settings.register_profile("sample", derandomize=True, database=None, deadline=None, max_examples=60)
settings.register_profile(
    "soak", derandomize=True, database=None, deadline=None, max_examples=3000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("soak" if SOAK else "sample")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "soak: a sweep that is too long for every run; it runs under `npm run soak`")
    config.addinivalue_line("markers", "torch: judges PyTorch; runs where scripts/pytorch.py could install its CPU build")


def pytest_report_header() -> list[str]:
    sweeps = "whole sweeps (PY_GEMM_SOAK)" if SOAK else "sampled sweeps; `npm run soak` runs them whole"
    return [f"py_gemm: {sweeps}", f"py_gemm: {pytorch.status()}"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    absent = {*(() if SOAK else ("soak",)), *(() if pytorch.installed() else ("torch",))}
    left_out = [item for item in items if any(item.get_closest_marker(name) for name in absent)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
    # Quick tests first; and Playwright keeps an event loop in the main thread, which a test that calls asyncio.run must not meet.
    items.sort(key=lambda item: "browser" in item.path.parts)


def pytest_sessionstart(session: pytest.Session) -> None:
    if session.config.option.collectonly:
        return
    missing = list(_missing())
    if missing:
        pytest.exit("the tests cannot run; `npm test` installs what they need. Missing:\n" + "\n".join(missing), returncode=1)


def _missing() -> list[str]:
    found = {
        "wasmtime (pip install --requirement requirements-dev.txt)": importlib.util.find_spec("wasmtime") is not None,
        "ziglang (pip install --requirement requirements-dev.txt)": importlib.util.find_spec("ziglang") is not None,
        "a Vulkan, Metal or D3D12 device that wgpu finds": vulkan.sees_device({}),
        "a Chromium": find_browser() is not None,
        f"Pyodide {bundle.VERSION} with NumPy in {bundle.folder()}": bundle.is_complete(bundle.folder()),
        "the npm packages (npm ci)": (NODE_MODULES / "pyodide" / "pyodide.mjs").is_file(),
    }
    return [name for name, there in found.items() if not there]


@pytest.fixture(scope="session")
def soak() -> bool:
    """Whether sweeps are to be whole."""
    return SOAK
