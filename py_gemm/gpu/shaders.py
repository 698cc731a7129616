"""Puts a WGSL module together from the files in shaders/: a kernel, the files it builds on, and one generated line an operand.

Pure text: compiles nothing. One text serves the browser (Tint) and wgpu (naga). Numbers are literals, never `override`: Safari
reads an override in the length of a workgroup array as zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ..assets import read_asset
from ..dtypes import BFLOAT16, FLOAT16, FLOAT32, ElementType


@dataclass(frozen=True, slots=True)
class Kernel:
    """One shader file. `bindings`: what group 0 binds in order ("uniform", "read", "write"); `operands`: those read by element, as
    float32, or with `reads_bits` as the 16 bits that they are."""

    parts: tuple[str, ...]
    bindings: tuple[str, ...]
    operands: tuple[str, ...] = ()
    encodes: bool = False
    reads_bits: bool = False


KERNELS: dict[str, Kernel] = {
    "gemm_tiled": Kernel(("decode", "epilogue", "gemm_tiled"), ("uniform", "read", "read", "read", "write"), ("a", "b")),
    "gemm_exact_f16": Kernel(
        ("decode", "exact_finish", "gemm_exact_f16"), ("uniform", "read", "read", "read", "write"), ("a", "b"), reads_bits=True
    ),
    "convert": Kernel(("decode", "convert"), ("uniform", "read", "write"), ("source",)),
    "narrow": Kernel(("narrow",), ("uniform", "read", "write"), encodes=True),
}

READABLE = (FLOAT32, FLOAT16, BFLOAT16)


@dataclass(frozen=True, slots=True)
class ShaderKey:
    """One compiled pipeline: a kernel and the element types it is made for (its operands', or the one it encodes)."""

    kernel: str
    types: tuple[ElementType, ...]

    @property
    def label(self) -> str:
        return "_".join((self.kernel, *(each.name for each in self.types)))

    @property
    def bindings(self) -> tuple[str, ...]:
        return KERNELS[self.kernel].bindings


@cache
def assemble(key: ShaderKey) -> str:
    """The whole WGSL text of `key`. Raises ValueError where the kernel cannot be made for these types."""
    kernel = KERNELS[key.kernel]
    if kernel.encodes:
        if len(key.types) != 1 or key.types[0] not in (FLOAT16, BFLOAT16):
            raise ValueError(f"{key.kernel} encodes float16 or bfloat16, not {key.types}")
        lines = [f"fn encode(bits: u32) -> u32 {{ return encode_{key.types[0].name}(bits); }}"]
    else:
        if len(key.types) != len(kernel.operands) or not set(key.types) <= set(READABLE):
            raise ValueError(f"{key.kernel} reads {len(kernel.operands)} operands of {READABLE}, not {key.types}")
        if kernel.reads_bits and any(each.size != 2 for each in key.types):
            raise ValueError(f"{key.kernel} reads the bits of 16-bit operands, not {key.types}")
        load = _load_bits if kernel.reads_bits else _load
        lines = [load(name, each) for name, each in zip(kernel.operands, key.types, strict=True)]
    parts = [read_asset(f"shaders/{part}.wgsl").decode() for part in kernel.parts]
    return "\n".join((*parts, *lines, ""))


def _load(operand: str, type_: ElementType) -> str:
    word = "index" if type_.size == 4 else "index >> 1u"
    return f"fn load_{operand}(index: u32) -> f32 {{ return decode_{type_.name}({operand}[{word}], index); }}"


def _load_bits(operand: str, _: ElementType) -> str:
    return f"fn load_{operand}(index: u32) -> u32 {{ return half_of({operand}[index >> 1u], index); }}"
