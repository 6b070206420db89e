"""Cycles of one config on a SPADE-like tile accelerator: ours, simulated, and not the published simulator.

A walk of all PEs counts what each PE asks of cache and DRAM in each stage, which ends at a barrier; this module turns
the counts into cycles. A PE takes the longest of three times, which overlap: multiplying, asking for lines, and waiting
for lines. A stage takes as long as its slowest PE, or as long as DRAM needs for the bytes of all PEs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
_BATCH = 1 << 15
"""Accesses that are written down before they are answered: as many as a core's cache holds."""


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
    flops: int
    """2 nnz J."""
    busiest_share: float
    """Share of all non-zeros that the busiest PE has; 1 / PEs where the load is balanced, and where there is none."""


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
            The config does not fit the problem.
        """
        problem, machine = self.problem, self.machine
        for name, found in _wrong(problem, config):
            raise ProblemError(f"expected a config with {name}, found {found!r}; space(problem) lists the legal ones")
        matrix = self._reordered if config["reorder"] else problem.matrix
        order = tile_order(matrix, config["p_row"], config["p_col"], config["barrier"], machine.pes)
        return _Walk(problem, config, machine, order).simulated()


class LruCache:
    """The cache that all PEs share: fully associative, LRU, written back, of equal slots, empty at first.

    Parameters
    ----------
    slots : int
        Items that the cache holds; 0 means that nothing is kept.
    items : int
        Items that there are.
    operands : iterable of int
        What passes through the cache: ``loops.SPARSE``, ``loops.ROWS`` and ``loops.COLUMNS``, or some of these.
    """

    def __init__(self, slots: int, items: int, operands: Iterable[int]) -> None:
        slots = min(slots, items)
        numbers = np.arange(slots + 1, dtype=np.int32)
        self._ring = np.stack([np.roll(numbers, -1), np.roll(numbers, 1)])
        self._held = np.stack([np.full(slots, -1, np.int32), np.zeros(slots, np.int32)])
        self._slot_of = np.full(items, -1, np.int32)
        self._cached = np.zeros(3, np.uint8)
        self._cached[list(operands)] = slots > 0

    def answer(self, accesses: NDArray[np.int32], counts: NDArray[np.int64]) -> int:
        """Answer accesses (3, n) in their order, and give the segments written to DRAM; `loops.answer` says more."""
        written: int = loops.answer(accesses, self._cached, self._slot_of, self._ring, self._held, counts)
        return written

    @property
    def dirty(self) -> int:
        """Segments that must still be written to DRAM."""
        return int(self._held[1].sum())


class _Walk:
    """One walk of all PEs through A, and what it costs."""

    def __init__(self, problem: Problem, config: Config, machine: Machine, order: TileOrder) -> None:
        self.problem, self.config, self.machine, self.order = problem, config, machine, order
        self.sums = problem.op is Op.SPMM
        self.slices = problem.width // config["d_split"]
        self.entry_bytes = _INDEX_BYTES + (FLOAT_BYTES if self.sums or problem.scaled else 0)
        self.lines = machine.lines(config["d_split"])
        self.segment_bytes = self.lines * machine.line_bytes
        self.slots = machine.cache_bytes // self.segment_bytes
        self.streams = not self.slots or loops.SPARSE in BYPASS[config["bypass"]]
        """Whether the stream of A skips the cache."""
        self.slices_of_stage = 1 if config["barrier"] else self.slices
        self.counts, self.written = self._walked()
        """(stages, PEs, KINDS, 2) misses and hits; (stages,) segments that were written to DRAM."""
        self.nonzeros = self.counts[:, :, loops.COLUMNS].sum(axis=2)
        """(stages, PEs): every non-zero loads one segment of B or Y for every slice."""

    def _walked(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        order, (num_rows, num_cols), pes = self.order, self.problem.matrix.shape, self.machine.pes
        stages = order.groups * self.slices // self.slices_of_stage
        stream = self.slices * (num_rows + num_cols)
        of_stream = 0 if self.streams else -(-self.problem.matrix.nnz * self.entry_bytes // self.segment_bytes)
        skipping = BYPASS[self.config["bypass"]]
        if stream + of_stream > np.iinfo(np.int32).max:
            raise ProblemError(
                f"expected at most 2^31 - 1 segments, found {stream + of_stream:,}: choose a d_split above "
                f"{self.config['d_split']}"
            )
        cache = LruCache(self.slots, stream + of_stream, [place for place in range(3) if place not in skipping])

        counts, written = np.zeros((stages, pes, loops.KINDS, 2), np.int64), np.zeros(stages, np.int64)
        accesses = np.empty((3, max(_BATCH, loops.KINDS * pes)), np.int32)
        for stage in range(stages):
            turn, group = divmod(stage, order.groups)
            begins = order.begins[group * pes : (group + 1) * pes + 1]
            end_slice = (turn + 1) * self.slices_of_stage
            slices = np.where(begins[:-1] < begins[1:], turn * self.slices_of_stage, end_slice)
            cursors = np.stack([begins[:-1], slices])
            while count := loops.take_turns(
                *(order.rows, order.columns, order.opens, begins),
                *(num_rows, num_cols, end_slice),
                *(-1 if self.streams else stream, self.entry_bytes, self.segment_bytes, self.sums),
                *(cursors, accesses),
            ):
                written[stage] += cache.answer(accesses[:, :count], counts[stage])
        written[-1] += cache.dirty
        return counts, written

    def simulated(self) -> Simulated:
        traffic = self._traffic()
        of_dram = sum(traffic.values()) / self.machine.dram_bytes_per_cycle
        cycles = float(np.maximum(self._pe_cycles().max(axis=1), of_dram).sum())
        cycles += (self.written.size - 1) * self.machine.barrier_cycles
        misses, hits = self.counts[:, :, loops.ROWS : loops.COLUMNS + 1].sum(axis=(0, 1, 2))
        of_pe = self.nonzeros.sum(axis=0)
        return Simulated(
            cycles=cycles,
            seconds=cycles / self.machine.clock_hz,
            dram_bytes={name: int(of_stage.sum()) for name, of_stage in traffic.items()},
            hits=int(hits),
            misses=int(misses),
            flops=int(2 * of_pe.sum() * self.config["d_split"]),
            busiest_share=float(of_pe.max() / of_pe.sum()) if of_pe.any() else 1 / self.machine.pes,
        )

    def _pe_cycles(self) -> NDArray[np.float64]:
        """Give the cycles of every PE in every stage, (stages, PEs)."""
        machine = self.machine
        misses, hits = np.moveaxis(self.counts[:, :, loops.ROWS : loops.COLUMNS + 1].sum(axis=2), 2, 0)
        stores = self.counts[:, :, loops.STORES].sum(axis=2)
        multiplying = self.nonzeros * -(-self.config["d_split"] // machine.macs_per_cycle)
        streamed = (self.nonzeros * self.entry_bytes + self._sampled_bytes()) / machine.line_bytes
        asking = (hits + misses + stores) * self.lines + streamed
        waiting = (hits * machine.hit_cycles + misses * machine.dram_cycles) * self.lines / machine.outstanding
        working: NDArray[np.float64] = np.maximum(np.maximum(multiplying, asking), waiting)
        tiles = self.order.tiles[np.arange(self.written.size) % self.order.groups] * self.slices_of_stage
        working += tiles * machine.tile_cycles
        return working

    def _traffic(self) -> dict[str, NDArray[np.int64]]:
        """Give the bytes between DRAM and the machine by operand, each (stages,)."""
        misses = self.counts[:, :, :, 0].sum(axis=1) * self.segment_bytes
        sparse = self.nonzeros.sum(axis=1) * self.entry_bytes if self.streams else misses[:, loops.SPARSE]
        if not self.sums:
            sampled = self._sampled_bytes().sum(axis=1)
            return {"A": sparse, "X": misses[:, loops.ROWS], "Y": misses[:, loops.COLUMNS], "D": sampled}
        summed = misses[:, loops.ROWS] + self.written * self.segment_bytes
        empty = int(np.count_nonzero(self.problem.matrix.row_lengths == 0))
        summed[-1] += empty * self.slices * self.segment_bytes
        return {"A": sparse, "B": misses[:, loops.COLUMNS], "C": summed}

    def _sampled_bytes(self) -> NDArray[np.int64]:
        """Give the bytes of D, (stages, PEs): written for every slice, and read for every slice but the first."""
        first = np.zeros_like(self.nonzeros)
        first[: self.order.groups] = np.diff(self.order.begins).reshape(self.order.groups, -1)
        return np.zeros_like(first) if self.sums else (2 * self.nonzeros - first) * FLOAT_BYTES


def _wrong(problem: Problem, config: Config) -> Iterator[tuple[str, Any]]:
    """Give what is expected of each tunable that does not fit, and its value."""
    for name in ("p_row", "p_col"):
        if config[name] < 1:
            yield f"{name} of at least 1", config[name]
    if config["d_split"] < 1 or problem.width % config["d_split"]:
        yield f"d_split that divides J = {problem.width}", config["d_split"]
    if config["bypass"] not in BYPASS:
        yield f"bypass out of {', '.join(BYPASS)}", config["bypass"]
