"""Python threads share a device: calls, recordings and products in pieces, each with its own numbers, so that every wrong buffer,
parameter or binding shows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import py_gemm as pg
from py_gemm.gpu.elementwise import Elementwise
from py_gemm.gpu.gemm import Gemm
from py_gemm.gpu.int8 import Int8Gemm

from .tools import product

ROUNDS = 20


def test_every_road_may_be_shared(device: Any) -> None:
    gemm, integers, rectify = Gemm(device), Int8Gemm(device), Elementwise(device, "relu")
    rate, device.pace.rate = device.pace.rate, 1.0  # pieces of 2^20 operations

    def work(seed: int) -> int:
        source, wrong = np.random.default_rng(seed), 0
        for _ in range(ROUNDS):
            m, n, k = (int(each) for each in source.integers(1, 150, 3))
            a, b = source.integers(-3, 4, (m, k)), source.integers(-3, 4, (k, n))
            x, y, s, t = a.astype("f4"), b.astype("f4"), a.astype("i1"), b.astype("i1")
            expected = a @ b
            wrong += not np.array_equal(pg.int8_gemm(s, t, device=device), expected)
            wrong += not np.array_equal(product(device, x, y, paced=True), expected)
            buffers = [device.create_buffer(each.view("u1")) for each in (x, y, s, t)]
            one, two, three = (device.create_buffer(4 * m * n) for _ in range(3))

            encoder = device.create_encoder()
            gemm.encode(encoder, buffers[0], buffers[1], one, m, n, k)
            rectify.encode(encoder, one, two, m, n)
            integers.encode(encoder, buffers[2], buffers[3], three, m, n, k)
            device.submit(encoder)
            wrong += not np.array_equal(np.frombuffer(device.read_buffer(two), "f4").reshape(m, n), np.maximum(expected, 0))
            wrong += not np.array_equal(np.frombuffer(device.read_buffer(three), "i4").reshape(m, n), expected)
        return wrong

    try:
        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(work, range(4))) == 0
    finally:
        device.pace.rate = rate
