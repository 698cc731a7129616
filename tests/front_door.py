"""What the tests of the front door share."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


def ones(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.ones(shape, dtype)


def odd(**arguments: Any) -> dict[str, Any]:
    """Arguments of types that the signature does not take."""
    return arguments


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """asyncio.run in a thread of its own: Playwright keeps a loop running in the main one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()
