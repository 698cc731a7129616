"""What an exact product may hold in memory, next to its operands."""

from __future__ import annotations

import pytest

from scripts.bench_exact import memory

SIZE = 512
MOST_TIMES_OPERANDS = 12


@pytest.mark.parametrize("name", ["float32", "float16", "float64"])
def test_memory(name: str) -> None:
    assert memory(name, SIZE) <= MOST_TIMES_OPERANDS
