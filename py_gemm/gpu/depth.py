"""How many terms of k an invocation may sum in one dispatch. A workaround for llvmpipe, and nothing else.

Mesa's llvmpipe (lavapipe) ends all loops of an invocation after 65,535 iterations in total (LP_MAX_TGSI_LOOP_ITERATIONS in
https://gitlab.freedesktop.org/mesa/mesa/-/blob/main/src/gallium/auxiliary/gallivm/lp_bld_limits.h), and what it then returns is
wrong, without a word. Deeper sums are made in several dispatches, which changes no bit of them. It costs a pass over the unfinished
sums for each of those, where a range of k has more than 32,768 terms. It can go when Mesa has no such limit.
"""

from __future__ import annotations

MOST_ITERATIONS = 65_535
DEEPEST = 32_768


def deepest(step: int, iterations: int) -> int:
    """The terms of one dispatch of a kernel whose invocations go through `iterations` for each `step` terms (a loop of n counts
    n + 1): a power of two, with a tenth of the iterations left for what surrounds the sum."""
    terms = DEEPEST
    while 10 * (terms // step) * iterations > 9 * MOST_ITERATIONS:
        terms //= 2
    return terms
