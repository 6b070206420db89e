"""The simulator of `impls/spade_sim` once more in plain Python: dictionaries, lists, an OrderedDict as the cache."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Op, Problem
from spmark.impls.spade_sim.machine import BYPASS, MACHINE, Machine
from spmark.impls.spade_sim.simulate import Simulated, Simulator

CONFIG = {"p_row": 4, "p_col": 8, "d_split": 16, "barrier": False, "bypass": "none", "reorder": False}


class PlainCache:
    """LRU with a flag for what must be written."""

    def __init__(self, slots: int) -> None:
        self.slots, self.held, self.written = slots, OrderedDict[Any, bool](), 0

    def use(self, item: Any, store: bool) -> bool:
        """Say whether an item is there, and keep it."""
        hit = item in self.held
        self.held[item] = self.held.pop(item, False) or store
        if len(self.held) > self.slots:
            self.written += self.held.popitem(last=False)[1]
        return hit


def tiles_of(problem: Problem, config: dict[str, Any]) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Give the non-zeros of every tile, row by row."""
    matrix, tiles = problem.matrix, defaultdict(list)
    for row in range(matrix.num_rows):
        for at in range(matrix.indptr[row], matrix.indptr[row + 1]):
            column = int(matrix.indices[at])
            tiles[row // config["p_row"], column // config["p_col"]].append((row, column))
    return tiles


def stages_of(problem: Problem, config: dict[str, Any], pes: int) -> Iterator[list[list[Any]]]:
    """Give, stage by stage, what every PE does: (slice, tile, non-zero)."""
    tiles = tiles_of(problem, config)
    slices = range(problem.width // config["d_split"])
    columns = range(-(-problem.matrix.num_cols // config["p_col"]))
    mine = [[key for key in sorted(tiles) if key[0] % pes == pe] for pe in range(pes)]
    if config["barrier"]:
        for part in slices:
            for column in columns:
                yield [[(part, key, ij) for key in keys if key[1] == column for ij in tiles[key]] for keys in mine]
    else:
        yield [[(part, key, ij) for part in slices for key in keys for ij in tiles[key]] for keys in mine]


class PlainWalk:
    """What the PEs of a machine have done so far."""

    def __init__(self, problem: Problem, config: dict[str, Any], machine: Machine) -> None:
        self.problem, self.config, self.machine = problem, config, machine
        self.sums = problem.op is Op.SPMM
        self.lines = -(-config["d_split"] * 4 // machine.line_bytes)
        self.segment = self.lines * machine.line_bytes
        self.entry = 12 if self.sums or problem.scaled else 8
        self.cache = PlainCache(machine.cache_bytes // self.segment)
        self.cached = [place not in BYPASS[config["bypass"]] and self.cache.slots > 0 for place in range(3)]
        self.names = ("A", "C", "B") if self.sums else ("A", "X", "Y")
        self.traffic: dict[str, int] = dict.fromkeys("ABC" if self.sums else "AXYD", 0)
        self.begun: set[Any] = set()
        self.sampled: set[Any] = set()
        self.hits = self.misses = 0
        tiles, pes = tiles_of(problem, config), machine.pes
        outer = (lambda key: key[1]) if config["barrier"] else (lambda key: 0)
        order = sorted(tiles, key=lambda key: (outer(key), key[0] % pes, key))
        self.position = {ij: at for at, ij in enumerate(ij for key in order for ij in tiles[key])}

    def moved(self) -> int:
        """Give the bytes between DRAM and machine so far."""
        return sum(self.traffic.values()) + self.cache.written * self.segment

    def load(self, operand: int, part: int, index: int, account: dict[str, int]) -> None:
        """Load a segment of a dense operand."""
        if self.cached[operand] and self.cache.use((operand, part, index), False):
            account["hits"] += 1
        else:
            account["misses"] += 1
            self.traffic[self.names[operand]] += self.segment

    def read(self, before: Any, now: Any) -> None:
        """Read an entry of the stream of A: in whole segments where these are cached."""
        place = self.position[now[2]] * self.entry // self.segment
        same = before is not None and before[0] == now[0]
        if not self.cached[0]:
            self.traffic["A"] += self.entry
        elif not same or place != self.position[before[2]] * self.entry // self.segment:
            self.traffic["A"] += 0 if self.cache.use((0, place), False) else self.segment

    def turn(self, before: Any, now: Any, after: Any, account: dict[str, int]) -> None:
        """Do one non-zero for one slice, between those that the PE does before and after in the stage."""
        part, tile, (row, column) = now
        row_of = [one and (one[0], one[1], one[2][0]) for one in (before, now, after)]
        self.read(before, now)
        account["nonzeros"] += 1
        account["tiles"] += before is None or before[:2] != (part, tile)
        account["streamed"] += self.entry
        if row_of[0] != row_of[1] and not (self.sums and (part, row) not in self.begun):
            self.load(1, part, row, account)
        self.begun.add((part, row))
        self.load(2, part, column, account)
        if not self.sums:
            both = 8 if (row, column) in self.sampled else 4
            self.sampled.add((row, column))
            self.traffic["D"] += both
            account["streamed"] += both
        elif row_of[1] != row_of[2]:
            account["stores"] += 1
            if self.cached[1]:
                self.cache.use((1, part, row), True)
            else:
                self.traffic["C"] += self.segment

    def stage(self, work: list[list[Any]]) -> float:
        """Do a stage, and give the cycles of the slowest PE."""
        names = ("nonzeros", "tiles", "streamed", "stores", "hits", "misses")
        accounts = [dict.fromkeys(names, 0) for _ in work]
        for turn in range(max(map(len, work))):
            for items, account in zip(work, accounts, strict=True):
                around = [items[at] if 0 <= at < len(items) else None for at in (turn - 1, turn, turn + 1)]
                if around[1] is not None:
                    self.turn(*around, account)
        for account in accounts:
            self.hits += account["hits"]
            self.misses += account["misses"]
        return max(self.cycles(**account) for account in accounts)

    def cycles(self, nonzeros: int, tiles: int, streamed: int, stores: int, hits: int, misses: int) -> float:
        """Give the cycles of a PE in a stage."""
        machine = self.machine
        multiplying = nonzeros * -(-self.config["d_split"] // machine.macs_per_cycle)
        asking = (hits + misses + stores) * self.lines + streamed / machine.line_bytes
        waiting = (hits * machine.hit_cycles + misses * machine.dram_cycles) * self.lines / machine.outstanding
        return max(multiplying, asking, waiting) + tiles * machine.tile_cycles

    def end(self) -> None:
        """Write what is left in the cache, and clear the rows of C that A leaves empty."""
        self.cache.written += sum(self.cache.held.values())
        if self.sums:
            empty = int(np.sum(self.problem.matrix.row_lengths == 0))
            self.traffic["C"] += empty * (self.problem.width // self.config["d_split"]) * self.segment


def plain_simulate(problem: Problem, config: dict[str, Any], machine: Machine) -> Simulated:
    """Give what `spmark.impls.spade_sim.simulate.Simulator` is to give, for configs without reordering."""
    walk, cycles = PlainWalk(problem, config, machine), 0.0
    stages = list(stages_of(problem, config, machine.pes))
    for number, work in enumerate(stages, 1):
        before = walk.moved()
        slowest = walk.stage(work)
        if number == len(stages):
            walk.end()
        cycles += max(slowest, (walk.moved() - before) / machine.dram_bytes_per_cycle)
    cycles += (len(stages) - 1) * machine.barrier_cycles
    walk.traffic[walk.names[1]] += walk.cache.written * walk.segment
    return Simulated(
        cycles=cycles,
        seconds=cycles / machine.clock_hz,
        dram_bytes=walk.traffic,
        hits=walk.hits,
        misses=walk.misses,
    )


def simulate(problem: Problem, config: Config, machine: Machine = MACHINE) -> Simulated:
    """Simulate one config."""
    return Simulator(problem, machine).run(config)
