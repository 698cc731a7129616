"""The front door: `matmul`, `gemm`, their awaitable twins, and `asarray`. Thin: call.py decides and runs.

D = act(alpha * op(A) @ op(B) + beta * C + bias)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from . import arrays, devices
from .arrays import DeviceArray
from .call import PreparedCall
from .configuration import configure as _configure
from .cpu.families import check_names
from .gpu.names import check_variant
from .gpu.pacing import Progress
from .prepare import forget_prepared, prepared_for
from .request import Request, check_memory, holding, named_device, require_live, serves, sync_unavailable


def matmul(
    a: Any,
    b: Any,
    *,
    out: Any = None,
    dtype: Any = None,
    mode: str = "fast",
    batch_invariant: bool = False,
    device: Any = None,
    dtype_a: Any = None,
    dtype_b: Any = None,
) -> Any:
    """The matrix product of `a` and `b`, with the shapes and the broadcasting of numpy.matmul.

    a: (..., m, k) or (k,); b: (..., k, n) or (k,); batch dimensions broadcast. float32, float16, bfloat16 (ml_dtypes, or
    uint16 bits tagged by dtype_a=, dtype_b="bfloat16") or float64 (on the CPU). Any strides; DeviceArrays are taken too.
    out: written in place and returned. dtype: the float type of the result, by default that of the operands promoted; it
    does not change the arithmetic, which is float32 unless an operand is float64. mode: "fast", "deterministic", or "exact":
    the exact value rounded once, the same bits on every machine (any float types on the CPU, float16 on a GPU).
    batch_invariant: the bits of an element do not depend on how many other rows or products are computed with it (on the CPU
    they never do; a GPU then keeps to the tile, and splits k by n and k alone).
    device: a device, a kind ("webgpu", "wgpu", "vulkan", "metal", "cpu"), or
    None: the CPU for small products, a hardware GPU for large ones.

    Returns a NumPy array (1-D with 1-D: a scalar), or a DeviceArray where `a` or `b` is one.
    Raises ShapeError, AliasError, TypeError, ValueError, UnsupportedError before anything is written; in a browser
    SyncUnavailableError where Python cannot wait for a GPU; DeviceLostError and DeviceMemoryError from the device.
    """
    return _run(
        Request("matmul", a, b, out=out, dtype=dtype, mode=mode, batch_invariant=batch_invariant, dtype_a=dtype_a, dtype_b=dtype_b),
        device,
    )


@holding
async def matmul_async(
    a: Any,
    b: Any,
    *,
    out: Any = None,
    dtype: Any = None,
    mode: str = "fast",
    batch_invariant: bool = False,
    device: Any = None,
    dtype_a: Any = None,
    dtype_b: Any = None,
    progress: Callable[[float], Any] | None = None,
) -> Any:
    """`matmul`, awaitable: for entries into Python that cannot wait for a GPU.

    A long product goes to a GPU in several submissions (the knob `submission_ms`), and others run between them. `progress` is
    called with the fraction that is done, up to 1; cancelling the task, or raising in `progress`, stops what is left, and no
    array of the host is changed then. An `out` is changed when the product ends: await it before the next call that reads `out`.
    """
    return await _run_async(
        Request("matmul", a, b, out=out, dtype=dtype, mode=mode, batch_invariant=batch_invariant, dtype_a=dtype_a, dtype_b=dtype_b),
        device,
        progress,
    )


def gemm(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: float = 1.0,
    beta: float | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    bias: Any = None,
    activation: str | None = None,
    out: Any = None,
    dtype: Any = None,
    mode: str = "fast",
    batch_invariant: bool = False,
    device: Any = None,
    dtype_a: Any = None,
    dtype_b: Any = None,
    dtype_c: Any = None,
) -> Any:
    """act(alpha * op(a) @ op(b) + beta * c + bias), in float32 (float64 where an operand is), each element rounded once.

    As `matmul`, and: c broadcasts to the result and may be of any float type; beta is 1 where c is given, else 0; with
    beta 0 c is not read, with alpha 0 a and b are not read. transpose_a, transpose_b swap the last two axes. bias: (n,),
    converted to float32. activation: None, "relu", "gelu_erf", "gelu_tanh" (py_gemm/epilogue.py defines them). `out` may
    be `c` itself, which is then updated. mode "exact": alpha and beta are taken as the float64 numbers that they are, the bias
    as float32, the whole expression exactly; of the activations relu only, for the value of a gelu has no correct rounding.

    Raises as `matmul` does.
    """
    request = Request(
        "gemm",
        a,
        b,
        c,
        alpha,
        beta,
        transpose_a,
        transpose_b,
        bias,
        activation,
        out,
        dtype,
        mode,
        batch_invariant,
        dtype_a,
        dtype_b,
        dtype_c,
    )
    return _run(request, device)


@holding
async def gemm_async(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: float = 1.0,
    beta: float | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    bias: Any = None,
    activation: str | None = None,
    out: Any = None,
    dtype: Any = None,
    mode: str = "fast",
    batch_invariant: bool = False,
    device: Any = None,
    dtype_a: Any = None,
    dtype_b: Any = None,
    dtype_c: Any = None,
    progress: Callable[[float], Any] | None = None,
) -> Any:
    """`gemm`, awaitable, with `progress`, cancelling and `out` as in `matmul_async`."""
    request = Request(
        "gemm",
        a,
        b,
        c,
        alpha,
        beta,
        transpose_a,
        transpose_b,
        bias,
        activation,
        out,
        dtype,
        mode,
        batch_invariant,
        dtype_a,
        dtype_b,
        dtype_c,
    )
    return await _run_async(request, device, progress)


def _decide(request: Request, device: Any) -> tuple[PreparedCall, Any]:
    prepared = prepared_for(request)
    if request.out is not None:
        check_memory(request)
    return prepared, named_device(request, device)


def _run(request: Request, device: Any) -> Any:
    return run_prepared(*_decide(request, device), request)


def run_prepared(prepared: PreparedCall, device: Any, request: Request) -> Any:
    """A call that is decided, on the device that is named or fits; waits where it must."""
    device = devices.device_for(device, prepared.flops, cpu_only=prepared.stays_on_cpu)
    if device.kind == "cpu":
        return prepared.run_on_cpu(device, request)
    prepared.check_gpu(device, request)
    waits = device.can_wait()
    if not waits and not prepared.returns_device_array(request):
        raise sync_unavailable(request)
    shaders = prepared.gpu_shaders(device, request)
    if waits and device.missing(shaders):
        device.prepare(shaders).wait()
    pending, finish = prepared.start_on_gpu(device, request)
    if pending is not None:
        pending.wait()
    return finish()


async def _run_async(request: Request, device: Any, progress: Progress | None) -> Any:
    return await run_prepared_async(*_decide(request, device), request, progress)


async def run_prepared_async(prepared: PreparedCall, device: Any, request: Request, progress: Progress | None = None) -> Any:
    """The same, awaited; `progress` is told the fraction that is done."""
    device = await devices.device_for_async(device, prepared.flops, cpu_only=prepared.stays_on_cpu)
    if device.kind == "cpu":
        await device.gemm.threads_up(prepared.flops // 2)
        result = prepared.run_on_cpu(device, request)
        if progress is not None:
            progress(1.0)
        return result
    prepared.check_gpu(device, request)
    shaders = prepared.gpu_shaders(device, request)
    if device.missing(shaders):
        await device.prepare(shaders)
    told: list[float] = []
    pending, finish = prepared.start_on_gpu(device, request, paced=True, progress=_telling(progress, told))
    if pending is not None:
        await pending
    result = finish()
    if progress is not None and not told:
        progress(1.0)
    return result


def _telling(progress: Progress | None, told: list[float]) -> Progress | None:
    """`progress`, noting in `told` that it was called: a product of one piece has nothing to tell but its end."""
    if progress is None:
        return None

    def tell(fraction: float) -> None:
        told.append(fraction)
        progress(fraction)

    return tell


def asarray(x: Any, *, device: Any = None, dtype: Any = None) -> DeviceArray:
    """A copy of `x` on a device, for use in many calls: shape and type stay, the memory is dense and row-major.

    x: what np.asarray takes, float32, float16, bfloat16, float64 (on the CPU only: UnsupportedError elsewhere), int8 or uint8.
    dtype: "bfloat16" says that uint16 elements are bfloat16 bits. device: as in `matmul`; None: the best there is.
    A DeviceArray of the same device is returned as it is.
    """
    if isinstance(x, DeviceArray) and _stays(x, device):
        return x
    if device is None or isinstance(device, str):
        device = devices.request_device(device)
    return _place(x, device, dtype)


async def asarray_async(x: Any, *, device: Any = None, dtype: Any = None) -> DeviceArray:
    """`asarray`, awaitable (asking for a GPU takes waiting in a browser)."""
    if isinstance(x, DeviceArray) and _stays(x, device):
        return x
    if device is None or isinstance(device, str):
        device = await devices.request_device_async(device)
    if isinstance(x, DeviceArray) and x.device is not device:
        return _place(await x.numpy_async(), device, "bfloat16" if x.bits else None)
    return _place(x, device, dtype)


def _stays(x: DeviceArray, device: Any) -> bool:
    """Whether `x` already lies where it is wanted; DeviceLostError where that place is gone."""
    stays = device is None or device is x.device or serves(x.device, device)
    if stays:
        x.require_live()
        require_live("asarray", x.device)
    return stays


def _place(x: Any, device: Any, tag: Any) -> DeviceArray:
    if isinstance(x, DeviceArray):
        if x.device is device:
            return x
        x, tag = x.numpy(), "bfloat16" if x.bits else None
    array, element, bits = arrays.snapshot("asarray", x, device, tag)
    if device.kind == "cpu":
        return DeviceArray(device, array.shape, element, bits=bits, array=array)
    buffer = device.create_buffer(arrays.as_bytes(array)) if array.size else device.create_buffer(4)
    return DeviceArray(device, array.shape, element, bits=bits, buffer=buffer)


def configure(**knobs: Any) -> None:
    """Set knobs for this process; None restores the default. They are: device, variant, token, deep_kc_bytes, threads,
    parallel_threshold, par_mnk_per_worker, small_parallel_mnk, gpu_min_flops, submission_ms, pool_bytes (README: Knobs).

    An argument of a call goes before `configure`, `configure` before the environment (`PY_GEMM_DEVICE` and so on).
    ValueError: an unknown knob, a value that makes no sense, a variant or token that no table has (the text lists the known).
    """
    for name, check in (("variant", check_variant), ("token", partial(check_names, None))):
        if isinstance(knobs.get(name), str):
            check(knobs[name].strip().lower())
    _configure(**knobs)
    forget_prepared()
    devices.forget_refusals()
