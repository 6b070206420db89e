"""The block formats' space and search on made-up times, and the plans that are built without a device to measure on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from problems import random_csr, run_checked
from races import made_up_race

from spmark.impls.core.errors import BuildError
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.formats import limits
from spmark.impls.formats.bsr import BsrFormat
from spmark.impls.kernels.block_spmm import block_instance, warp_kernel
from spmark.impls.kernels.family import taken_apart
from spmark.impls.runtime.device import find
from spmark.impls.runtime.target import open_target
from spmark.impls.sparsetir.blocks import (
    COLS,
    FORM,
    PANELS,
    ROWS,
    SparseTirBsr,
    SparseTirDbsr,
    SparseTirSrBcrs,
    block_space,
    opened,
    panel_space,
    run_through,
    varied,
)

MATRIX = random_csr(70, 90, np.random.default_rng(8).integers(0, 12, 70).tolist())
HOST = find("host-simt")
IMPLEMENTATIONS = (SparseTirBsr, SparseTirDbsr, SparseTirSrBcrs)


def problem_of(width: int, dtype: DType = DType.FLOAT16) -> Problem:
    return Problem(Op.SPMM, MATRIX, width, dtype)


def pinned() -> list[tuple[int, int]]:
    both = [(r, c) for r in ROWS for c in COLS if c > 16 or r == 16]
    return [(0, 0), *((r, 0) for r in ROWS), *((0, c) for c in COLS), *both]


@pytest.mark.parametrize("width", [1, 20, 33, 64, 512])
def test_every_config_of_the_space_has_a_kernel(width: int) -> None:
    problem = problem_of(width)
    for rows, cols in pinned():
        space = block_space(problem, rows, cols)
        assert space
        for config in space:
            assert rows in (0, config["block_rows"])
            assert cols in (0, config["block_cols"])
            block_instance(width, config["block_rows"], config["tile"], config["depth"], gathered=False)
            assert config["block_cols"] % config["depth"] == 0
    space = panel_space(problem)
    assert {(c["t"], c["g"]) for c in space} == set(PANELS)
    for config in space:
        if config["t"] == 8:
            warp_kernel(width, config)
        else:
            block_instance(width, config["t"], config["tile"], config["depth"], gathered=True)
            assert config["g"] % config["depth"] == 0


def test_the_space_is_measured_and_the_best_few_with_turned_starts() -> None:
    def cost(config: dict[str, Any]) -> float:
        if config["block_rows"] == 16:
            raise BuildError("too small")
        return config["block_rows"] + config["tile"] / 100 - config["turned"]

    space = block_space(problem_of(512))
    race, timer = made_up_race(cost)
    run_through(race, space, lambda config: False)
    config, _ = race.finish()
    assert (config["block_rows"], config["tile"], config["turned"]) == (32, 64, True)
    assert len(timer.asked) == len(space) + 3 == len(race.seen)
    assert all(one in list(varied(space)) for one in timer.asked)
    assert sum(c["turned"] for c in timer.asked) == 3


def test_small_grids_are_tried_with_rows_cut_in_parts() -> None:
    def cost(config: dict[str, Any]) -> float:
        return 100 * config["block_rows"] / config["parts"] + config["tile"] + config["block_cols"] + config["turned"]

    race, timer = made_up_race(cost)
    space = block_space(problem_of(512))
    run_through(race, space, lambda config: config["block_rows"] >= 96)
    assert all(one in list(varied(space)) for one in timer.asked)
    config, _ = race.finish()
    assert {one["block_rows"] for one in timer.asked if one["parts"] > 1} == {96, 128}
    assert (config["block_rows"], config["parts"], config["turned"]) == (96, 8, False)


def limited(problem: Problem, shape: tuple[int, int], most: int) -> BsrFormat:
    """Convert as if formats held at most so many elements."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MAX_STORED", most)
        return BsrFormat.from_csr(problem.matrix, *shape)


def test_formats_made_of_a_refused_one_are_not_converted() -> None:
    asked = []

    def convert(problem: Problem, config: dict[str, Any]) -> BsrFormat:
        asked.append((config["block_rows"], config["block_cols"]))
        return limited(problem, asked[-1], 1 if config["block_cols"] == 32 else 1 << 20)

    problem = problem_of(16)
    build = opened(problem, open_target(HOST), convert)
    failed = []
    for config in block_space(problem):
        try:
            build(config)
        except BuildError as error:
            failed.append((config["block_rows"], config["block_cols"]))
            assert "at most 1 stored elements" in str(error)
    assert asked == [(16, 16), (32, 32)]
    assert failed == [shape for shape in dict.fromkeys(map(tuple, failed)) if shape != (16, 16)]
    assert len(failed) == len(block_space(problem)) - 1


def test_blocks_are_refused_where_both_of_their_sides_are_made_of_a_refused_one() -> None:
    def convert(problem: Problem, config: dict[str, Any]) -> BsrFormat:
        shape = config["block_rows"], config["block_cols"]
        return limited(problem, shape, 1 if shape == (64, 64) else 1 << 20)

    problem = problem_of(16)
    space = {(c["block_rows"], c["block_cols"]): c for c in block_space(problem)}
    build = opened(problem, open_target(HOST), convert)
    for shape in ((64, 64), (128, 64), (128, 128)):
        with pytest.raises(BuildError, match="at most 1 stored elements"):
            build(space[shape])
    for shape in ((128, 32), (96, 64), (64, 32)):
        assert build(space[shape]).stored > 0


def test_pinned_config_is_what_is_built() -> None:
    problem = problem_of(16)
    for made, form in (
        (SparseTirBsr(block_rows=64, block_cols=32), {"block_rows": 64, "block_cols": 32}),
        (SparseTirDbsr(block_rows=16), {"block_rows": 16, "block_cols": 16}),
        (SparseTirSrBcrs(t=32), {"t": 32, "g": 32}),
    ):
        plan = made.build(problem, HOST)
        assert taken_apart(plan.config, FORM)[0] == form
        run_checked(plan, problem)


@pytest.mark.parametrize("kind", IMPLEMENTATIONS)
def test_float32_and_widths_beyond_the_grid_are_refused(kind: type[Any]) -> None:
    assert "expected float16" in kind().unsupported(problem_of(32, DType.FLOAT32), HOST)
    assert "expected J of at most" in kind().unsupported(problem_of(64 * 65535 + 1), HOST)
    assert kind().unsupported(problem_of(4096), HOST) is None


def test_illegal_tunables_are_refused() -> None:
    for kind in (SparseTirBsr, SparseTirDbsr):
        for rows, cols in ((48, 0), (0, 8), (32, 16)):
            with pytest.raises(ValueError, match=f"found {rows} and {cols}"):
                kind(block_rows=rows, block_cols=cols)
    with pytest.raises(ValueError, match="expected t out of 0, 8, 16, 32, 64, found 12"):
        SparseTirSrBcrs(t=12)


@pytest.mark.parametrize("kind", IMPLEMENTATIONS)
def test_a_plan_that_shares_its_format_tells_what_it_holds_alone(kind: type[Any]) -> None:
    problem, target = problem_of(128), open_target(HOST)
    made = kind()
    forms: dict[str, list[dict[str, Any]]] = {}
    for config in made.space(problem):
        forms.setdefault(str(taken_apart(config, FORM)[0]), []).append(config)
    configs = next(several for several in forms.values() if len(several) > 1)[:2]
    build = opened(problem, target, made.convert)
    shared = [build(config) for config in configs]
    assert all(a is b for a, b in zip(shared[0].arrays, shared[1].arrays, strict=True))
    alone = opened(problem, target, made.convert)(configs[1])
    assert shared[1].device_bytes == alone.device_bytes
    assert shared[1].phases_s["convert"] > 0.5 * shared[0].phases_s["convert"]
    run_checked(shared[1], problem)
