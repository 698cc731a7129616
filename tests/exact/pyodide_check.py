"""What the tests ask of the exact reference inside a Pyodide, whose NumPy has no BLAS: the same bits from every engine.
Runs there, so it imports nothing that is not there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import py_gemm.exact as er

SIZE = 256


def check() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    small = [rng.standard_normal((5, 40)).astype(np.float32), rng.standard_normal((40, 3)).astype(np.float32)]
    bits = {
        engine: er.matmul(*small, engine=engine).rounded.tobytes().hex()
        for engine in ("rational", "fsum", "ozaki", "superaccumulator")
    }
    a, b = (rng.standard_normal((SIZE, SIZE)).astype(np.float32) for _ in range(2))
    return {
        "bits": bits,
        "covered": bool(er.matmul(a, b).covers(a @ b).all()),
        "buffer": memoryview(er.asarray([[1, 2], [3, 4]], "int16").T).tolist(),  # type: ignore[arg-type, unused-ignore]
        "half": er.matmul(er.asarray([[1.5]], "bfloat16"), er.asarray([[2.0]], "bfloat16")).rounded.tolist(),
    }
