"""Puts a WGSL module together from the files in shaders/: a kernel, the files it builds on, and one generated line an operand.

Pure text: compiles nothing. One text serves the browser (Tint) and wgpu (naga). Numbers are literals, never `override`: Safari
reads an override in the length of a workgroup array as zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

from ..assets import read_asset
from ..dtypes import BFLOAT16, FLOAT16, FLOAT32, ElementType
from .register_tile import TILES, kernel_text


@dataclass(frozen=True, slots=True)
class Kernel:
    """One shader file. `bindings`: what group 0 binds in order ("uniform", "read", "write"); `operands`: those read by element, as
    float32, or with `reads_bits` as the 16 bits that they are; `constants`: the WGSL constants that the row of the table gives a
    value to; `text`: what is written rather than read."""

    parts: tuple[str, ...]
    bindings: tuple[str, ...]
    operands: tuple[str, ...] = ()
    encodes: bool = False
    reads_bits: bool = False
    constants: tuple[tuple[str, str], ...] = ()
    text: Callable[[], str] | None = None


# What every kernel of a product binds: A, B, the bias, D.
_PRODUCT = ("uniform", "read", "read", "read", "write")


def _rows(columns: int, lanes: int, *, fast_columns: bool) -> Kernel:
    constants = (("COLUMNS", f"{columns}u"), ("LANES", f"{lanes}u"), ("CHAIN", "32u"), ("FAST_COLUMNS", str(fast_columns).lower()))
    return Kernel(("decode", "epilogue", "product", "finish", "gemm_rows"), _PRODUCT, ("a", "b"), constants=constants)


KERNELS: dict[str, Kernel] = {
    "gemm_tiled": Kernel(("decode", "epilogue", "product", "finish", "gemm_tiled"), _PRODUCT, ("a", "b")),
    "gemm_splitk_sum": Kernel(("epilogue", "finish", "gemm_splitk_sum"), ("uniform", "read", "read", "write")),
    "gemm_exact_f16": Kernel(("decode", "exact_terms", "exact_finish", "gemm_exact_f16"), _PRODUCT, ("a", "b"), reads_bits=True),
    "gemm_exact_end": Kernel(("exact_finish", "gemm_exact_end"), ("uniform", "read", "read", "write")),
    "elementwise": Kernel(("epilogue", "elementwise"), ("uniform", "read", "read", "write")),
    "gemm_rows_16x16": _rows(16, 16, fast_columns=True),
    "gemm_rows_32x8": _rows(32, 8, fast_columns=True),
    "gemm_rows_8x32": _rows(8, 32, fast_columns=False),
    "convert": Kernel(("decode", "convert"), ("uniform", "read", "write"), ("source",)),
    "narrow": Kernel(("narrow",), ("uniform", "read", "write"), encodes=True),
}

# int8: the kernel, what multiplies (four by four by instruction or plainly), what is stored (int32 sums, or requantized bytes).
KERNELS |= {
    f"int8_{kernel}_{product}_{stored}": Kernel(
        ("int8_operands", f"int8_{product}", store, f"int8_{kernel}"), ("uniform", "read", "read", "read", "write")
    )
    for kernel in ("tiled", "skinny")
    for product in ("dot4", "plain")
    for stored, store in (("sum", "int8_store_sum"), ("bytes", "requantize"))
}
KERNELS["int8_finish"] = Kernel(
    ("int8_operands", "int8_plain", "requantize", "int8_finish"), ("uniform", "read", "read", "read", "write")
)

# A and B a second time, as vectors of four.
_VECTORS = (*_PRODUCT, "read", "read")
KERNELS |= {
    tile.kernel: Kernel(
        ("decode", "epilogue", "product", "finish"),
        _PRODUCT if tile.scalar else _VECTORS,
        ("a", "b"),
        text=partial(kernel_text, tile),
    )
    for tile in TILES
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
    def reads_vectors(self) -> bool:
        """Whether A and B are bound a second time, as vectors of four."""
        return self.bindings == _VECTORS

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
    lines += [f"const {name} = {value};" for name, value in kernel.constants]
    if kernel.text is not None:
        lines.append(kernel.text())
    parts = [read_asset(f"shaders/{part}.wgsl").decode() for part in kernel.parts]
    return "\n".join((*parts, *lines, ""))


def _load(operand: str, type_: ElementType) -> str:
    word = "index" if type_.size == 4 else "index >> 1u"
    return f"fn load_{operand}(index: u32) -> f32 {{ return decode_{type_.name}({operand}[{word}], index); }}"


def _load_bits(operand: str, _: ElementType) -> str:
    return f"fn load_{operand}(index: u32) -> u32 {{ return half_of({operand}[index >> 1u], index); }}"
