"""The simulator against closed forms, against a second one in plain Python, and against what must never change."""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from problems import matrices, random_csr
from spade_reference import CONFIG, plain_simulate, simulate

from spmark.impls.core.errors import ProblemError
from spmark.impls.core.problem import Csr, Op, Problem
from spmark.impls.formats.nearness import near_order
from spmark.impls.spade_sim.machine import BYPASS, Machine
from spmark.impls.spade_sim.platform import SpadePlatform
from spmark.impls.spade_sim.simulate import Simulated, Simulator

space = SpadePlatform().space

SMALL = Machine(pes=3, cache_bytes=20 * 64, dram_bytes_per_s=40e9)
ENDLESS = replace(SMALL, cache_bytes=1 << 30)
NONE = replace(SMALL, cache_bytes=0)
WHOLE = {**CONFIG, "p_row": 1 << 20, "p_col": 1 << 20, "d_split": 32}
SHAPES = [(1, 1), (4, 8), (3, 100), (100, 5), (7, 1)]


def drawn(seed: int = 0, num_rows: int = 37, num_cols: int = 53) -> Csr:
    """Give a matrix with empty rows, a long row and rows between."""
    lengths = np.random.default_rng(seed).integers(0, 9, num_rows)
    lengths[[2, 5]] = 0, num_cols
    return random_csr(num_rows, num_cols, lengths.tolist(), seed)


def of(op: Op, matrix: Csr, width: int = 32, scaled: bool = False) -> Problem:
    return Problem(op, matrix, width, scaled=scaled)


def assert_equal(found: Simulated, expected: Simulated) -> None:
    for name, value in asdict(expected).items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-12), name


# Against the plain simulator.


@pytest.mark.one_in(8)
@pytest.mark.parametrize("bypass", BYPASS)
@pytest.mark.parametrize("barrier", [False, True])
@pytest.mark.parametrize(("op", "scaled"), [(Op.SPMM, False), (Op.SDDMM, False), (Op.SDDMM, True)])
def test_every_figure_is_that_of_the_plain_simulator(op: Op, scaled: bool, barrier: bool, bypass: str) -> None:
    problem = of(op, drawn(), scaled=scaled)
    for (p_row, p_col), d_split in product(SHAPES, (8, 16, 32)):
        config = {**CONFIG, "p_row": p_row, "p_col": p_col, "d_split": d_split, "barrier": barrier, "bypass": bypass}
        for machine in (SMALL, NONE):
            assert_equal(simulate(problem, config, machine), plain_simulate(problem, config, machine))


@pytest.mark.parametrize("name", matrices())
@pytest.mark.parametrize("op", Op)
def test_tiny_matrices_are_simulated_like_by_the_plain_simulator(op: Op, name: str) -> None:
    problem = of(op, matrices()[name], 16)
    for barrier, bypass in product((False, True), ("none", "sparse_rows")):
        config = {**CONFIG, "p_row": 16, "p_col": 64, "barrier": barrier, "bypass": bypass}
        assert_equal(simulate(problem, config, SMALL), plain_simulate(problem, config, SMALL))


def test_reordering_simulates_the_matrix_of_the_other_order() -> None:
    matrix = drawn(2)
    there = matrix.of_rows(near_order(matrix).rows)[0]
    assert not np.array_equal(there.indices, matrix.indices)
    found = simulate(of(Op.SPMM, matrix), {**CONFIG, "reorder": True}, SMALL)
    assert found == simulate(of(Op.SPMM, there), CONFIG, SMALL)


# Closed forms.


def test_one_pe_on_a_dense_tile_moves_every_operand_once() -> None:
    """I = 16, K = 24, J = 32: two lines a row of B and C, 384 non-zeros of 12 bytes."""
    problem = of(Op.SPMM, matrices()["fully_dense"])
    machine = Machine(pes=1, cache_bytes=1 << 20, tile_cycles=5, hit_cycles=16, dram_cycles=80, outstanding=32)
    found = simulate(problem, {**WHOLE, "bypass": "sparse"}, machine)
    assert found.dram_bytes == {"A": 384 * 12, "B": 24 * 32 * 4, "C": 16 * 32 * 4}
    assert (found.hits, found.misses) == (384 - 24, 24)
    # 384 loads and 16 stores of two lines and 72 lines of A in turn; waiting takes 360 * 16 / 16 + 24 * 80 / 16 cycles.
    assert found.cycles == 2 * (384 + 16) + 72 + 5
    assert found.seconds == found.cycles / 0.8e9
    slow = simulate(problem, {**WHOLE, "bypass": "sparse"}, replace(machine, dram_cycles=800, macs_per_cycle=64))
    assert slow.cycles == 360 * 16 / 16 + 24 * 800 / 16 + 5
    wide = simulate(problem, {**WHOLE, "bypass": "sparse"}, replace(machine, macs_per_cycle=5))
    assert wide.cycles == 384 * 7 + 5


def test_sddmm_of_a_dense_tile_moves_every_operand_once() -> None:
    machine = Machine(pes=1, cache_bytes=1 << 20)
    found = simulate(of(Op.SDDMM, matrices()["fully_dense"]), {**WHOLE, "bypass": "sparse"}, machine)
    assert found.dram_bytes == {"A": 384 * 8, "X": 16 * 32 * 4, "Y": 24 * 32 * 4, "D": 384 * 4}
    assert (found.hits, found.misses) == (384 - 24, 24 + 16)


@pytest.mark.parametrize("op", Op)
def test_without_a_cache_every_load_misses(op: Op) -> None:
    matrix = drawn()
    nnz, filled = matrix.nnz, int(np.count_nonzero(matrix.row_lengths))
    found = simulate(of(op, matrix), {**WHOLE, "d_split": 16}, NONE)
    loads = 2 * nnz + (0 if op is Op.SPMM else 2 * filled)
    assert (found.hits, found.misses) == (0, loads)
    assert found.dram_bytes["A"] == 2 * nnz * (12 if op is Op.SPMM else 8)
    assert found.dram_bytes["B" if op is Op.SPMM else "Y"] == 2 * nnz * 64


def test_without_a_cache_sums_come_and_go_for_every_row_of_a_tile() -> None:
    matrix = drawn()
    pairs = {(row, column // 8) for row, column in zip(matrix.rows_of_entries(), matrix.indices, strict=True)}
    filled, empty = int(np.count_nonzero(matrix.row_lengths)), int(np.count_nonzero(matrix.row_lengths == 0))
    found = simulate(of(Op.SPMM, matrix, 16), CONFIG, NONE)
    assert found.dram_bytes["C"] == (2 * len(pairs) - filled + empty) * 64


def test_d_is_read_again_for_every_slice_but_the_first() -> None:
    matrix = drawn()
    for barrier, slices in product((False, True), (1, 2, 4)):
        config = {**CONFIG, "d_split": 32 // slices, "barrier": barrier}
        found = simulate(of(Op.SDDMM, matrix), config, SMALL)
        assert found.dram_bytes["D"] == (2 * slices - 1) * 4 * matrix.nnz


def test_a_barrier_costs_what_the_machine_says() -> None:
    problem = of(Op.SPMM, drawn())
    config = {**CONFIG, "barrier": True}
    free, costly = (simulate(problem, config, replace(SMALL, barrier_cycles=cycles)) for cycles in (0, 1000))
    assert costly.cycles - free.cycles == pytest.approx(1000 * (2 * 7 - 1))  # 53 columns in tiles of 8, two slices


# What must not change.


def configs_of(problem: Problem) -> list[dict[str, Any]]:
    """Give small tiles in every combination."""
    values = product(SHAPES, (8, 16, 32), (False, True), BYPASS)
    return [
        {**CONFIG, "p_row": p_row, "p_col": p_col, "d_split": d_split, "barrier": barrier, "bypass": bypass}
        for (p_row, p_col), d_split, barrier, bypass in values
        if problem.width % d_split == 0
    ]


def test_an_endless_cache_reads_and_writes_every_segment_once_under_every_config() -> None:
    matrix = drawn(4)
    for op, names in ((Op.SPMM, "BC"), (Op.SDDMM, "YX")):
        problem = of(op, matrix)
        of_rows = matrix.num_rows if op is Op.SPMM else int(np.count_nonzero(matrix.row_lengths))
        for config in configs_of(problem):
            segments = 32 // config["d_split"] * max(64, config["d_split"] * 4)
            found = simulate(problem, {**config, "bypass": "none"}, ENDLESS).dram_bytes
            assert (found[names[0]], found[names[1]]) == (matrix.used_cols * segments, of_rows * segments)


@pytest.mark.parametrize("op", Op)
def test_a_larger_cache_never_misses_more(op: Op) -> None:
    """LRU is a stack algorithm: what a cache holds, a larger one holds as well."""
    problem = of(op, drawn(6))
    for config in configs_of(problem)[::3]:
        found = [simulate(problem, config, replace(SMALL, cache_bytes=128 << power)) for power in range(8)]
        for smaller, larger in pairwise(found):
            assert larger.misses <= smaller.misses
            assert all(moved <= smaller.dram_bytes[name] for name, moved in larger.dram_bytes.items())
            if not config["barrier"]:
                assert larger.cycles <= smaller.cycles


def test_more_bandwidth_and_less_latency_never_take_longer() -> None:
    problem = of(Op.SPMM, drawn(7))
    for config in configs_of(problem)[::3]:
        for name, values in {
            "dram_bytes_per_s": (1e9, 1e10, 1e11, 1e12),
            "dram_cycles": (300, 100, 30, 0),
            "hit_cycles": (60, 20, 0),
            "outstanding": (1, 4, 16),
            "macs_per_cycle": (1, 4, 16),
        }.items():
            cycles = [simulate(problem, config, replace(SMALL, **{name: value})).cycles for value in values]
            assert cycles == sorted(cycles, reverse=True), name


def test_the_result_is_that_of_the_pattern_alone() -> None:
    matrix = drawn(8)
    others = Csr(matrix.shape, matrix.indptr, matrix.indices, matrix.values * np.float32(2))
    for config in ({**CONFIG, "reorder": True}, {**CONFIG, "barrier": True}):
        first = simulate(of(Op.SPMM, matrix), config, SMALL)
        assert simulate(of(Op.SPMM, matrix), config, SMALL) == first
        assert simulate(of(Op.SPMM, others), config, SMALL) == first
        assert Simulator(of(Op.SPMM, matrix), SMALL).run(config) == first


def test_a_matrix_without_nonzeros_has_only_rows_to_clear() -> None:
    found = simulate(of(Op.SPMM, matrices()["no_nonzeros"]), CONFIG, SMALL)
    assert found.dram_bytes == {"A": 0, "B": 0, "C": 5 * 32 * 4}
    assert found.cycles == pytest.approx(5 * 32 * 4 / 50)
    assert (found.hits, found.misses) == (0, 0)
    assert simulate(of(Op.SDDMM, matrices()["no_nonzeros"]), CONFIG, SMALL).cycles == 0


# What is refused.


def test_more_segments_than_a_number_has_room_for_are_refused() -> None:
    matrix = Csr((1, 2**31 - 1), np.array([0, 1], np.int32), np.zeros(1, np.int32), np.ones(1, np.float32))
    with pytest.raises(ProblemError, match=r"2\^31 - 1 segments, found 4,294,967,296: choose a d_split above 16"):
        simulate(of(Op.SPMM, matrix), {**WHOLE, "d_split": 16, "bypass": "sparse"})


def test_half_precision_is_refused() -> None:
    problem = Problem(Op.SPMM, drawn(), 32, "float16")
    for call in (lambda: simulate(problem, CONFIG), lambda: space(problem)):
        with pytest.raises(ProblemError, match="computes in float32, found a problem in float16"):
            call()
