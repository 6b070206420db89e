"""The machine that is simulated: SPADE-like, ours, and not the published simulator.

DASH (section 4.1) says of its accelerator that 32 processing elements (PEs) run at 0.8 GHz. Every other number here is
our choice; the reason stands beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from spmark.impls.core.errors import ProblemError
from spmark.impls.core.problem import DType, Problem

FLOAT_BYTES = 4
"""Bytes of an element: the machine computes in float32."""
BYPASS: Final = {"none": (), "sparse": (0,), "sparse_rows": (0, 1), "sparse_columns": (0, 2)}
"""What skips the cache, by the value of ``bypass``, as `spmark.impls.spade_sim.loops` numbers it: 0 is the stream of A,
1 the operand that A's rows name (C or X), 2 the operand that A's columns name (B or Y)."""


@dataclass(frozen=True)
class Machine:
    """The parameters of a SPADE-like tile accelerator."""

    pes: int = 32
    """Processing elements (DASH, section 4.1)."""
    clock_hz: float = 0.8e9
    """Cycles a second (DASH, section 4.1)."""
    macs_per_cycle: int = 16
    """Multiply-accumulates of a PE in a cycle: a line of float32 meets an equally wide vector unit."""
    line_bytes: int = 64
    """Bytes that memory and cache transfer at once, as on the hosts that such an accelerator is coupled to."""
    cache_bytes: int = 4 << 20
    """The cache that all PEs share: 128 KiB a PE. It holds 8,192 rows of 128 columns, so that matrices of common sizes
    lie on both sides of it. It may be 0."""
    hit_cycles: int = 16
    """From a request to a line out of the cache: 20 ns, as the last-level cache of a server answers."""
    dram_cycles: int = 80
    """From a request to a line out of DRAM: 100 ns, as the memory of a server answers without a load."""
    dram_bytes_per_s: float = 204.8e9
    """What all PEs share: eight channels of DDR4-3200, the memory of one server socket."""
    outstanding: int = 32
    """Lines that a PE may wait for at once. One PE alone then gets 25.6 bytes a cycle, a tenth of what DRAM gives: a
    balanced load is bound by bandwidth, a single late PE by latency."""
    tile_cycles: int = 32
    """From one tile to the next on a PE: the instruction is read, and the pipeline drains and fills."""
    barrier_cycles: int = 200
    """From the last PE's arrival at a barrier to the first request after it: two trips through DRAM's latency, and the
    queue of tile instructions is filled again."""

    @property
    def dram_bytes_per_cycle(self) -> float:
        """Bytes that DRAM gives or takes in a cycle."""
        return self.dram_bytes_per_s / self.clock_hz

    def lines(self, elements: int) -> int:
        """Give the lines that hold ``elements`` consecutive elements; rows of dense operands begin with a line."""
        return -(-elements * FLOAT_BYTES // self.line_bytes)


MACHINE: Final = Machine()
"""The machine that configs are priced on."""


def check_dtype(problem: Problem) -> None:
    """Refuse a problem that is not in float32.

    Raises
    ------
    ProblemError
    """
    if problem.dtype is not DType.FLOAT32:
        raise ProblemError(f"the SPADE-like accelerator computes in float32, found a problem in {problem.dtype}")
