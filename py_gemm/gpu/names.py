"""The names of all variants, of float products and of integer ones: what the knob `variant` may say."""

from __future__ import annotations

from .int8_variants import INT8_VARIANTS
from .variants import VARIANTS

VARIANT_NAMES: tuple[str, ...] = (*(row.name for row in VARIANTS), *(row.name for row in INT8_VARIANTS))


def check_variant(name: str) -> str:
    """`name` itself; ValueError listing the known ones where no table has such a row."""
    if name not in VARIANT_NAMES:
        raise ValueError(f"unknown variant {name!r}; known: {', '.join(VARIANT_NAMES)}")
    return name
