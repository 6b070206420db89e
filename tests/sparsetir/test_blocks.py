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
from spmark.impls.kernels.block_spmm import block_instance
from spmark.impls.kernels.family import taken_apart
from spmark.impls.kernels.tile_spmm import tile_spmm_instance
from spmark.impls.runtime.device import find
from spmark.impls.runtime.target import open_target
from spmark.impls.sparsetir.blocks import (
    BLOCKS,
    FORM,
    PANELS,
    SparseTirBsr,
    SparseTirDbsr,
    SparseTirSrBcrs,
    block_space,
    opened,
    run_through,
    tile_space,
    varied,
)

MATRIX = random_csr(70, 90, np.random.default_rng(8).integers(0, 12, 70).tolist())
HOST = find("host-simt")
IMPLEMENTATIONS = (SparseTirBsr, SparseTirDbsr, SparseTirSrBcrs)


def problem_of(width: int, dtype: DType = DType.FLOAT16) -> Problem:
    return Problem(Op.SPMM, MATRIX, width, dtype)


@pytest.mark.parametrize("width", [1, 20, 33, 64, 512])
def test_every_config_of_the_space_has_a_kernel(width: int) -> None:
    problem = problem_of(width)
    for config in block_space(problem):
        block_instance(problem, config["block_rows"], config["tile"], config["depth"], gathered=False)
        assert config["block_cols"] % config["depth"] == 0
    space = block_space(problem, PANELS)
    assert [taken_apart(c, FORM)[0] for c in space if c["tile"] == 64] == PANELS[1:]
    for config in space:
        block_instance(problem, config["t"], config["tile"], config["depth"], gathered=True)
        assert config["g"] % config["depth"] == 0
    for config in tile_space(problem):
        tile_spmm_instance(problem, config, mixed=False)
    assert bool(tile_space(problem)) == (width % 8 == 0)


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


def test_refused_formats_are_not_converted_again() -> None:
    asked = []

    def convert(problem: Problem, config: dict[str, Any]) -> BsrFormat:
        asked.append((config["block_rows"], config["block_cols"]))
        return limited(problem, asked[-1], 1 if config["block_cols"] == 32 else 1 << 20)

    problem = problem_of(512)  # has two tiles for each format
    build = opened(problem, open_target(HOST), convert)
    failed = []
    for config in block_space(problem):
        try:
            build(config)
        except BuildError as error:
            failed.append((config["block_rows"], config["block_cols"]))
            assert "at most 1 stored elements" in str(error)
    assert asked == [tuple(form.values()) for form in BLOCKS]
    assert failed == [tuple(form.values()) for form in BLOCKS if form["block_cols"] == 32 for _ in range(2)]


def test_pinned_config_is_what_is_built() -> None:
    problem = problem_of(16)
    for made, form in (
        (SparseTirBsr(block_rows=64, block_cols=32), {"block_rows": 64, "block_cols": 32}),
        (SparseTirDbsr(block_rows=16), {"block_rows": 16, "block_cols": 16}),
        (SparseTirDbsr(block_cols=128), {"block_rows": 128, "block_cols": 128}),
        (SparseTirSrBcrs(t=32), {"t": 32, "g": 32}),
        (SparseTirSrBcrs(t=8), {"t": 8, "g": 16}),
    ):
        plan = made.build(problem, HOST)
        assert taken_apart(plan.config, FORM)[0] == form
        run_checked(plan, problem)


@pytest.mark.parametrize("kind", IMPLEMENTATIONS)
def test_float32_and_widths_beyond_the_grid_are_refused(kind: type[Any]) -> None:
    assert "expected 16-bit floats" in kind().unsupported(problem_of(32, DType.FLOAT32), HOST)
    assert "expected J of at most" in kind().unsupported(problem_of(64 * 65535 + 1), HOST)
    assert kind().unsupported(problem_of(4096), HOST) is None


def test_panels_of_eight_rows_refuse_other_widths_than_multiples_of_eight() -> None:
    assert "expected J a multiple of 8" in str(SparseTirSrBcrs(t=8).unsupported(problem_of(20), HOST))
    assert SparseTirSrBcrs(t=8).unsupported(problem_of(24), HOST) is None
    assert taken_apart(SparseTirSrBcrs().build(problem_of(20), HOST).config, FORM)[0] == PANELS[1]


def test_illegal_tunables_are_refused() -> None:
    for kind in (SparseTirBsr, SparseTirDbsr):
        for rows, cols in ((48, 0), (0, 8), (32, 16), (32, 64)):
            with pytest.raises(ValueError, match=rf"found .*block_rows={rows}, block_cols={cols}"):
                kind(block_rows=rows, block_cols=cols)
    with pytest.raises(ValueError, match=r"expected sizes of one of .* found .*t=12"):
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


def test_kernels_of_one_format_share_its_arrays_in_any_order() -> None:
    problem, made = problem_of(64), SparseTirBsr(block_rows=16)
    build = opened(problem, open_target(HOST), made.convert)
    of_kernel = {tuple(config): config for config in made.space(problem)}
    assert len(of_kernel) == 2
    for config in 2 * list(of_kernel.values()):
        run_checked(build(config), problem)
