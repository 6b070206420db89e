"""Every mode on a GPU: what it chooses is right, its accounts add up, and a second build only loads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from problems import dense_operands, random_csr
from rank_fakes import stump

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import DeviceError
from spmark.impls.core.operators import reference
from spmark.impls.core.problem import Op, Problem
from spmark.impls.core.tolerance import tolerance
from spmark.impls.lo_spmm.plan import LoSpmm
from spmark.impls.lo_spmm.tuning import RANKED, Chooser
from spmark.impls.runtime.device import find
from spmark.impls.tuning.cache import empty_cache

pytestmark = pytest.mark.gpu


@pytest.fixture
def device() -> DeviceSpec:
    try:
        return find("cuda")
    except DeviceError as error:
        pytest.skip(str(error))


@pytest.fixture
def problem() -> Problem:
    lengths = np.random.default_rng(2).binomial(96, 0.1, 400).tolist()
    lengths[7] = 0
    return Problem(Op.SPMM, random_csr(400, 96, lengths), 1000)


@pytest.mark.parametrize("mode", Chooser)
def test_mode(
    mode: Chooser, problem: Problem, device: DeviceSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import cupy

    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path))
    stump(6, 10).save(tmp_path / "model.json")
    how = LoSpmm(mode=str(mode), model=str(tmp_path / "model.json"), cpt=1)
    assert how.unsupported(problem, device) is None
    plan = how.build(problem, device)
    operands = dense_operands(problem)
    given = [cupy.asarray(operand) for operand in operands]
    results = []
    for built in (plan, how.build(problem, device)):
        out = cupy.full(problem.out_shape, np.nan, np.float32)
        built.run(given, out)
        results.append(out.get())
        assert reference(problem, operands).max_error(results[-1]) <= tolerance(problem)
        assert built.config == plan.config
        assert built.search == plan.search
        assert {name: built.phases_s[name] for name in ("search", "convert", "compile")} == {
            name: plan.phases_s[name] for name in ("search", "convert", "compile")
        }
    np.testing.assert_array_equal(*results)
    assert plan.search is not None
    measured = [one for one in plan.search.seen if one.samples_us]
    assert len(measured) == plan.search.measured
    assert bool(measured) == mode.runs
    if mode.ranks:
        assert len(measured) == RANKED


def test_in_an_empty_cache_nothing_is_read_or_kept(
    problem: Problem, device: DeviceSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path))
    with empty_cache():
        LoSpmm(mode="estimate").build(problem, device)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_plan_that_is_loaded_tells_what_loading_costs(
    problem: Problem, device: DeviceSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether or not there is a plan to load; it is the one that was built."""
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path))
    loaded = LoSpmm(mode="estimate").load(problem, device)
    built = LoSpmm(mode="estimate").build(problem, device)
    for plan in (loaded, LoSpmm(mode="estimate").load(problem, device)):
        assert set(plan.phases_s) == {"search", "upload"}
        assert plan.phases_s["search"] < built.phases_s["search"] + built.phases_s["compile"]
        assert plan.search is None
        assert plan.config == {**built.config, "loaded": True}


@pytest.mark.parametrize("emitter", ["ptx", "cuda"])
@pytest.mark.parametrize("split", [2, 4, 8])
def test_split_columns_add_up(split: int, emitter: str, problem: Problem, device: DeviceSpec) -> None:
    """Also on a second run, whose workspace holds the first one's parts, and replayed from a graph."""
    import cupy

    plan = LoSpmm(tile_rows=12, threads=96, cpt=2, tiles_per_block=2, split=split, emitter=emitter).build(
        problem, device
    )
    given = []
    stream = cupy.cuda.Stream(non_blocking=True)
    out = cupy.empty(problem.out_shape, np.float32)
    for seed in range(2):
        operands = tuple(operand * (seed + 1) for operand in dense_operands(problem))
        given = [cupy.asarray(operand) for operand in operands]
        out.fill(np.nan)
        plan.run(given, out)
        assert reference(problem, operands).max_error(out.get()) <= tolerance(problem)
    expected = out.get()
    with stream:
        stream.begin_capture()
        plan.run(given, out)
        graph = stream.end_capture()
        out.fill(np.nan)
        graph.launch(stream)
    stream.synchronize()
    np.testing.assert_array_equal(out.get(), expected)
