"""How fast a device is: a guess first, then learnt from what ran. It decides how much goes into one submission, never a bit of a
result. Pure bookkeeping: measures nothing itself.
"""

from __future__ import annotations

# Operations a second before anything ran: what the slowest integrated GPUs give, and what SwiftShader gives on two cores.
HARDWARE_RATE, SOFTWARE_RATE = 5e10, 3e8
# Shorter runs, and smaller ones, measure the way to the device and back rather than the device.
SHORTEST_SECONDS, SMALLEST_FLOPS = 0.02, 10**8


class Pace:
    """How fast a device multiplies, in operations (2 m n k) a second."""

    def __init__(self, is_software: bool) -> None:
        self.rate = SOFTWARE_RATE if is_software else HARDWARE_RATE

    def note(self, flops: int, seconds: float | None) -> None:
        """Learn from a run: half the way towards what it showed."""
        if seconds is not None and seconds >= SHORTEST_SECONDS and flops >= SMALLEST_FLOPS:
            self.rate = (self.rate + flops / seconds) / 2

    def flops_in(self, milliseconds: int) -> int:
        """The work that should take so long, rounded down to a power of two so that plans are found again."""
        return 1 << max(int(self.rate * milliseconds / 1000).bit_length() - 1, 20)
