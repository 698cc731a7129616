"""Every row between sentinels, on memory full of NaN and of 1e33: batches, leading dimensions, offsets, a shared B, a strided C.

Whatever is read that should not be, or written where it should not be, shows. Whole numbers: results are exact in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from py_gemm.epilogue import GemmEpilogue
from py_gemm.gpu.device import Buffer
from py_gemm.gpu.devices.wgpu_native import WgpuDevice
from py_gemm.gpu.gemm import Gemm
from py_gemm.gpu.variants import VARIANTS

from .test_elementwise import CASES
from .tools import TYPES, numpy_type

POISONS = {"nan": np.float32(np.nan), "1e33": np.float32(1e33)}
SENTINEL = np.float32(54321.0)


class Poisoned(WgpuDevice):
    """A device whose every buffer starts full of one value."""

    poison = POISONS["nan"]

    def _create(self, nbytes: int) -> Buffer:
        buffer = super()._create(nbytes)
        self._write(buffer.handle, 0, memoryview(np.full(buffer.handle.size // 4, self.poison).tobytes()))
        return buffer


@pytest.fixture(scope="module", params=POISONS)
def poisoned(request: pytest.FixtureRequest, device: Any) -> Iterator[Any]:
    found = Poisoned(device.handle)
    found.poison = POISONS[request.param]
    yield found
    found.empty_pool()


def as_type(values: Any, type_: Any) -> Any:
    """1e33 as a half is an infinity, which is poison enough."""
    with np.errstate(over="ignore"):
        return values.astype(type_)


def laid(matrices: Any, leading: int, stride: int, offset: int, around: Any) -> tuple[Any, Any]:
    """The matrices in memory that is otherwise `around`, and where their elements lie."""
    batch, rows, columns = matrices.shape
    memory = as_type(np.full(offset + (batch - 1) * stride + rows * leading + 5, around), matrices.dtype)
    where = offset + stride * np.arange(batch)[:, None, None] + leading * np.arange(rows)[:, None] + np.arange(columns)
    memory[where] = matrices
    return memory, where


@pytest.mark.parametrize(("variant", "sizes", "name", "mode"), [case for case in CASES if case[3] == "fast"], ids=str)
@pytest.mark.parametrize("shared_b", [False, True])
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (2.0, -3.0), (0.0, 2.0), (0.0, 0.0)], ids=str)
def test_nothing_around_the_operands_matters(
    poisoned: Any, variant: str, sizes: Any, name: str, mode: str, shared_b: bool, alpha: float, beta: float
) -> None:
    m, n, k, transpose_b = sizes
    (row,) = [each for each in VARIANTS if each.name == variant]
    rng = np.random.default_rng(n)
    batch = 2
    a = rng.integers(-3, 4, (batch, m, k)).astype("f4")
    b = rng.integers(-3, 4, (1 if shared_b else batch, k, n)).astype("f4")
    c = rng.integers(-3, 4, (batch, m, n)).astype("f4")
    bias = rng.integers(-3, 4, n).astype("f4")
    stored = numpy_type(TYPES[name])
    stored_b = b.transpose(0, 2, 1) if transpose_b else b
    lda, ldb, ldc = k + 3, stored_b.shape[2] + 1, n + 2
    stride_a, stride_b, stride_c = m * lda + 1, stored_b.shape[1] * ldb + 2, m * ldc + 3
    poison = poisoned.poison
    read = alpha != 0.0
    memory_a, _ = laid(as_type(a if read else np.full_like(a, poison), stored), lda, stride_a, 3, poison)
    memory_b, _ = laid(as_type(stored_b if read else np.full_like(stored_b, poison), stored), ldb, stride_b, 5, poison)
    memory_c, where = laid(c if beta else np.full_like(c, poison), ldc, stride_c, 7, SENTINEL)
    placed = [poisoned.create_buffer(each.view(np.uint8)) for each in (memory_a, memory_b, memory_c)]
    given = poisoned.create_buffer(np.concatenate([[poison], bias, [poison]]).astype("f4"))
    encoder = poisoned.create_encoder()
    Gemm(poisoned, name, mode, variant=variant).encode(
        encoder, placed[0], placed[1], placed[2], m, n, k, transpose_b=transpose_b, alpha=alpha, beta=beta, batch=batch,
        lda=lda, ldb=ldb, ldc=ldc, stride_a=stride_a, stride_b=0 if shared_b else stride_b, stride_c=stride_c,
        offset_a=3, offset_b=5, offset_c=7, epilogue=GemmEpilogue(given, 1, "relu"),
    )  # fmt: skip
    poisoned.submit(encoder)
    product = alpha * (a.astype("f8") @ b) if read else 0.0
    memory_c[where] = np.maximum(product + (beta * c if beta else 0.0) + bias, 0.0)
    found = np.frombuffer(poisoned.read_buffer(placed[2]), "f4")[: memory_c.size]
    assert np.array_equal(found, memory_c), row.name


def test_the_poison_is_there(poisoned: Any) -> None:
    found = np.frombuffer(poisoned.read_buffer(poisoned.create_buffer(4000)), "f4")
    assert np.array_equal(found, np.full(1000, poisoned.poison), equal_nan=True)
