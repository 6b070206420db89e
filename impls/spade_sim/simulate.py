"""Cycles of one config on a SPADE-like tile accelerator: ours, simulated, and not the published simulator.

A walk of all PEs counts what each PE asks of cache and DRAM in each stage, which ends at a barrier; this module turns
the counts into cycles. A PE takes the longest of three times, which overlap: multiplying, asking for lines, and waiting
for lines. A stage takes as long as its slowest PE, or as long as DRAM needs for the bytes of all PEs.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import ProblemError
from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Csr, Op, Problem
from spmark.impls.formats.nearness import near_order
from spmark.impls.spade_sim import loops
from spmark.impls.spade_sim.machine import BYPASS, FLOAT_BYTES, MACHINE, Machine, check_dtype
from spmark.impls.spade_sim.tiling import TileOrder, tile_order

_INDEX_BYTES = 8
"""Of an entry in the stream of A: the row and the column, 4 bytes each."""


@dataclass(frozen=True)
class Simulated:
    """What one config costs on a SPADE-like accelerator; simulated, ours."""

    cycles: float
    seconds: float
    dram_bytes: dict[str, int]
    """Bytes between DRAM and the machine in both directions, by operand: A, B, C for SpMM and A, X, Y, D for SDDMM."""
    hits: int
    """Loads of segments of the dense operands that the cache answered."""
    misses: int
    """Loads of segments of the dense operands that DRAM answered, those past the cache included."""


@dataclass(frozen=True)
class Simulator:
    """Simulates configs of one problem on one machine; rows are put into another order once for all configs.

    Raises
    ------
    ProblemError
        The problem is not in float32.
    """

    problem: Problem
    machine: Machine = MACHINE

    def __post_init__(self) -> None:
        check_dtype(self.problem)

    @cached_property
    def _reordered(self) -> Csr:
        matrix = self.problem.matrix
        return matrix.of_rows(near_order(matrix).rows)[0]

    def run(self, config: Config) -> Simulated:
        """Simulate a config of `spmark.impls.spade_sim.platform.SpadePlatform.space`.

        Parameters
        ----------
        config : dict
            Any ``p_row`` and ``p_col`` of at least 1 will do, also values that the space leaves out.

        Returns
        -------
        Simulated
            A function of problem, config and machine alone. O(nnz J / d_split + stages PEs) time.

        Raises
        ------
        ProblemError
            The config has more segments than a number has room for.
        """
        matrix = self._reordered if config["reorder"] else self.problem.matrix
        order = tile_order(matrix, config["p_row"], config["p_col"], config["barrier"], self.machine.pes)
        return _Walk(self.problem, config, self.machine, order).simulated()


def empty_cache(slots: int, items: int, skipping: Container[int]) -> tuple[NDArray[Any], ...]:
    """Give the cache that all PEs share, as `loops.run_stage` takes it: written back, of equal slots, empty at first.

    Parameters
    ----------
    slots : int
        Items that the cache holds; 0 means that nothing is kept.
    items : int
        Items that there are.
    skipping : container of int
        What skips the cache: ``loops.SPARSE``, ``loops.ROWS`` and ``loops.COLUMNS``, or some of these.

    Returns
    -------
    cached, slot_of, ring, held
    """
    slots = min(slots, items)
    numbers = np.arange(slots + 1, dtype=np.int32)
    cached = np.array([slots > 0 and operand not in skipping for operand in range(3)], np.uint8)
    ring = np.stack([np.roll(numbers, -1), np.roll(numbers, 1)])
    return cached, np.full(items, -1, np.int32), ring, np.repeat(np.array([[-1], [0]], np.int32), slots, axis=1)


class _Walk:
    """One walk of all PEs through A, and what it costs."""

    def __init__(self, problem: Problem, config: Config, machine: Machine, order: TileOrder) -> None:
        self.problem, self.machine, self.order, self.d_split = problem, machine, order, config["d_split"]
        (num_rows, num_cols), pes = problem.matrix.shape, machine.pes
        self.sums = problem.op is Op.SPMM
        self.slices = problem.width // self.d_split
        self.slices_of_stage = 1 if config["barrier"] else self.slices
        self.entry_bytes = _INDEX_BYTES + (FLOAT_BYTES if self.sums or problem.scaled else 0)
        self.lines = machine.lines(self.d_split)
        self.segment_bytes = self.lines * machine.line_bytes
        slots, skipping = machine.cache_bytes // self.segment_bytes, BYPASS[config["bypass"]]
        self.streams = not slots or loops.SPARSE in skipping
        """Whether the stream of A skips the cache."""
        stream = self.slices * (num_rows + num_cols)
        of_stream = 0 if self.streams else -(-problem.matrix.nnz * self.entry_bytes // self.segment_bytes)
        if stream + of_stream > np.iinfo(np.int32).max:
            raise ProblemError(
                f"expected at most 2^31 - 1 segments, found {stream + of_stream:,}: choose a d_split above "
                f"{self.d_split}"
            )
        cache = empty_cache(slots, stream + of_stream, skipping)
        stages = order.groups * self.slices // self.slices_of_stage
        self.counts = np.zeros((stages, pes, loops.KINDS, 2), np.int64)
        """Misses and hits."""
        self.written = np.zeros(stages, np.int64)
        """Segments that were written to DRAM."""
        first_of_stream = -1 if self.streams else stream
        for stage in range(stages):
            turn, group = divmod(stage, order.groups)
            begins = order.begins[group * pes : (group + 1) * pes + 1]
            slices = turn * self.slices_of_stage, (turn + 1) * self.slices_of_stage
            sizes = num_rows, num_cols, *slices, first_of_stream, self.entry_bytes, self.segment_bytes
            self.written[stage] = loops.run_stage(
                order.rows, order.columns, order.opens, begins, sizes, self.sums, *cache, self.counts[stage]
            )
        self.written[-1] += cache[-1][1].sum()  # what is dirty at the end
        self.nonzeros = self.counts[:, :, loops.COLUMNS].sum(axis=2)
        """(stages, PEs): every non-zero loads one segment of B or Y for every slice."""
        self.sampled_bytes = np.zeros_like(self.nonzeros)
        """(stages, PEs) bytes of D: written for every slice, and read for every slice but the first."""
        if not self.sums:
            self.sampled_bytes += 2 * self.nonzeros * FLOAT_BYTES
            self.sampled_bytes[: order.groups] -= np.diff(order.begins).reshape(order.groups, -1) * FLOAT_BYTES

    def simulated(self) -> Simulated:
        traffic, machine = self._traffic(), self.machine
        of_dram = sum(traffic.values()) / machine.dram_bytes_per_cycle
        misses, hits = np.moveaxis(self.counts[:, :, loops.ROWS : loops.COLUMNS + 1].sum(axis=2), 2, 0)
        stores = self.counts[:, :, loops.STORES].sum(axis=2)
        multiplying = self.nonzeros * -(-self.d_split // machine.macs_per_cycle)
        streamed = (self.nonzeros * self.entry_bytes + self.sampled_bytes) / machine.line_bytes
        asking = (hits + misses + stores) * self.lines + streamed
        waiting = (hits * machine.hit_cycles + misses * machine.dram_cycles) * self.lines / machine.outstanding
        tiles = self.order.tiles[np.arange(self.written.size) % self.order.groups] * self.slices_of_stage
        of_pes = np.maximum(np.maximum(multiplying, asking), waiting) + tiles * machine.tile_cycles
        cycles = float(np.maximum(of_pes.max(axis=1), of_dram).sum())
        cycles += (self.written.size - 1) * machine.barrier_cycles
        moved = {name: int(of_stage.sum()) for name, of_stage in traffic.items()}
        return Simulated(cycles, cycles / machine.clock_hz, moved, int(hits.sum()), int(misses.sum()))

    def _traffic(self) -> dict[str, NDArray[np.int64]]:
        """Give the bytes between DRAM and the machine by operand, each (stages,)."""
        missed = dict(enumerate((self.counts[..., 0].sum(axis=1) * self.segment_bytes).T))
        sparse = self.nonzeros.sum(axis=1) * self.entry_bytes if self.streams else missed[loops.SPARSE]
        of_rows, of_columns = missed[loops.ROWS], missed[loops.COLUMNS]
        if not self.sums:
            return {"A": sparse, "X": of_rows, "Y": of_columns, "D": self.sampled_bytes.sum(axis=1)}
        summed = of_rows + self.written * self.segment_bytes
        empty = int(np.count_nonzero(self.problem.matrix.row_lengths == 0))
        summed[-1] += empty * self.slices * self.segment_bytes
        return {"A": sparse, "B": of_columns, "C": summed}
