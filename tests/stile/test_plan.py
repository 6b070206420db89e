"""STile's plans on the host: what they hold, say of themselves and refuse; the choice among measured ones."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from problems import dense_operands, matrices, run_checked
from stile_calibrations import search
from way_back import csr_of

from spmark.datasets.cache import Cache
from spmark.datasets.load import load_matrix
from spmark.datasets.sweep.model import MatrixSpec
from spmark.impls.core.errors import BuildError, DeviceError, UnsupportedError
from spmark.impls.core.operators import reference
from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.core.tolerance import tolerance
from spmark.impls.formats.threads import cores
from spmark.impls.formats.tiles import BLOCK, TileFormat
from spmark.impls.runtime.device import find
from spmark.impls.runtime.target import open_target
from spmark.impls.stile.calibration import PUBLISHED, BlockCost, Calibration, calibration_for, published_a100
from spmark.impls.stile.plan import Stile
from spmark.impls.stile.search import forms_of
from spmark.impls.stile.space import Formats, Rules
from spmark.impls.stile.tune import fastest

HOST = find("host-simt")


def banded(size: int = 160, period: int = 16, band: int = 16) -> Csr:
    """Give a band, and strides that are dense when rows stand by their remainder."""
    i = np.arange(size)
    pattern = (np.abs(i[:, None] - i) < band) | ((i[:, None] - i) % period == 0)
    rows, cols = np.nonzero(pattern)
    values = np.random.default_rng(0).uniform(0.5, 1, rows.size).astype(np.float32)
    return Csr.checked(pattern.shape, np.append(0, np.cumsum(pattern.sum(axis=1))), cols, values)


def run(problem: Problem, implementation: Stile) -> Any:
    plan = implementation.build(problem, HOST)
    run_checked(plan, problem)
    return plan


@pytest.mark.parametrize(
    ("op", "width", "dtype", "formats"),
    [
        (Op.SPMM, 64, DType.FLOAT16, {"blocks", "mixed"}),
        (Op.SPMM, 20, DType.FLOAT16, {"other"}),
        (Op.SPMM, 64, DType.FLOAT32, {"other"}),
        (Op.SDDMM, 20, DType.FLOAT16, {"blocks", "mixed"}),
        (Op.SDDMM, 64, DType.FLOAT32, {"other"}),
    ],
)
def test_blocks_where_there_are_kernels_for_them(op: Op, width: int, dtype: DType, formats: set[str]) -> None:
    assert run(Problem(op, banded(), width, dtype), Stile()).config["formats"] in formats


def test_windows_of_both_heights_where_both_are_calibrated(tmp_path: Path) -> None:
    spec, path = published_a100(), tmp_path / "low.json"
    own = Calibration.of(spec, Op.SPMM, DType.FLOAT16)
    low = tuple(BlockCost(8, b.cols, b.part, 0.4 * b.plain_ms, 0.4 * b.atomic_ms) for b in own.blocks)
    spec.model_copy(update={"tables": replace(own, blocks=own.blocks + low).tables()}).save(path)
    problem = Problem(Op.SPMM, banded(), 32, DType.FLOAT16)
    implementation = Stile(mode="paper", formats="blocks", calibration=str(path))
    found = search(problem.matrix, calibration_for("", Op.SPMM, DType.FLOAT16, str(path))[0], 32, implementation)
    assert 8 in found.selection.height[found.selection.kind == BLOCK]
    run(problem, implementation)


@pytest.mark.parametrize("scaled", [False, True])
def test_results_in_the_order_of_tiles(scaled: bool) -> None:
    problem = Problem(Op.SDDMM, banded(), 64, DType.FLOAT16, scaled)
    truth = reference(problem, dense_operands(problem))
    for formats, order in (("blocks", "tiles"), ("other", "csr")):
        plan = Stile(order="tiles", formats=formats).build(problem, HOST)
        assert plan.config["order"] == order
        assert (plan.order is None) == (order == "csr")
        out = np.full(problem.out_shape, np.nan, np.float16)
        plan.run(dense_operands(problem), out)
        assert truth.max_error(truth.select(problem, out, plan.order)) <= tolerance(problem)
    assert run(problem, Stile()).config["order"] == "csr"


@pytest.mark.parametrize("op", Op)
@pytest.mark.parametrize(
    "config",
    [{"mode": "paper"}, {"levels": 1, "withdraw": False}, {"formats": "blocks"}, {"rearrange": False}],
    ids=str,
)
def test_tunables(op: Op, config: dict[str, Any]) -> None:
    run(Problem(op, matrices()["lengths_of_warps"], 32, DType.FLOAT16), Stile(**config))


def calibrated_in_float32(path: Path) -> str:
    """Give a calibration whose block tiles cost the same in float32; the published one has none."""
    spec = published_a100()
    half, own = (Calibration.of(spec, Op.SPMM, dtype) for dtype in (DType.FLOAT16, DType.FLOAT32))
    spec.model_copy(update={"tables": replace(own, blocks=half.blocks).tables()}).save(path)
    return str(path)


@pytest.mark.parametrize("formats", ["mixed", "blocks"])
def test_blocks_of_float32_where_they_are_calibrated(formats: str, tmp_path: Path) -> None:
    problem = Problem(Op.SPMM, banded(), 64, DType.FLOAT32)
    plan = run(problem, Stile(formats=formats, calibration=calibrated_in_float32(tmp_path / "own.json")))
    assert plan.config["formats"] in {"mixed", "blocks"}
    with pytest.raises(UnsupportedError, match=f"{PUBLISHED}: expected costs of block tiles for spmm in float32"):
        Stile(formats="blocks").build(problem, HOST)


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ({"mode": "codes"}, "mode"),
        ({"formats": "none"}, "formats"),
        ({"searched_width": -1}, "searched_width"),
        ({"levels": -1}, "level"),
        ({"order": "rows"}, "order"),
    ],
)
def test_refuses(config: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        Stile(**config)


def test_unsupported() -> None:
    blocks = Stile(formats="blocks")
    matrix = matrices()["empty_rows"]
    assert "16-bit floats for SDDMM" in str(blocks.unsupported(Problem(Op.SDDMM, matrix, 32, DType.FLOAT32), HOST))
    assert "multiple of 8" in str(blocks.unsupported(Problem(Op.SPMM, matrix, 20, DType.FLOAT16), HOST))
    assert blocks.unsupported(Problem(Op.SPMM, matrix, 24, DType.FLOAT16), HOST) is None
    assert "order: csr" in str(Stile(order="tiles").unsupported(Problem(Op.SPMM, matrix, 24, DType.FLOAT16), HOST))
    assert "J of at most" in str(Stile().unsupported(Problem(Op.SPMM, matrix, 10**6, DType.FLOAT16), HOST))


def test_calibrations_are_named(tmp_path: Path) -> None:
    found, label = calibration_for(PUBLISHED, Op.SPMM, DType.FLOAT16)
    assert (found.device, label) == (PUBLISHED, PUBLISHED)
    path = tmp_path / "mine.json"
    published_a100().model_copy(update={"name": "my-gpu"}).save(path)
    assert calibration_for("my-gpu", Op.SPMM, DType.FLOAT16, str(path))[1] == "my-gpu"
    assert calibration_for("other-gpu", Op.SPMM, DType.FLOAT16, str(path))[1] == "my-gpu, not this GPU's"
    assert calibration_for("other-gpu", Op.SDDMM, DType.FLOAT16)[1] == f"{PUBLISHED}, not this GPU's"
    with pytest.raises(DeviceError, match="no-such-gpu"):
        calibration_for("my-gpu", Op.SPMM, DType.FLOAT16, "no-such-gpu")
    published_a100().model_copy(update={"tables": {}}).save(path)
    with pytest.raises(DeviceError, match="found none: calibrate"):
        calibration_for("my-gpu", Op.SPMM, DType.FLOAT16, str(path))


@pytest.mark.parametrize(("device", "band"), [(PUBLISHED, 16), ("nvidia-h200", 32)])
def test_what_blocks_leave_is_searched_in_another_order_of_rows(device: str, band: int) -> None:
    """On the H200 blocks of whole windows leave nothing of the wide band, and two orders are better all the same."""
    matrix = banded(1024, 32, band)
    calibration, _ = calibration_for(device, Op.SPMM, DType.FLOAT16)
    plain, better = (search(matrix, calibration, 32, Rules(rearrange=on, keep_mixture=True)) for on in (False, True))
    assert better.predicted_ms < 0.9 * plain.predicted_ms
    held = TileFormat.from_csr(matrix, better.selection)
    np.testing.assert_array_equal(csr_of(held).values, matrix.values)


class MadeUpTimes:
    """Times that say which schedule is fastest, but for the lucky ones, and one plan whose result is wrong."""

    lucky = False

    def __init__(self, problem: Problem, device: Any) -> None:
        pass

    def check(self, plan: Any) -> None:
        if plan.config.get("formats") == "blocks":
            raise BuildError("wrong result")

    def times_us(self, plans: Any, rounds: int) -> list[list[float]]:
        return [[self.cost(plan.config) - 3.0 * (self.lucky and plan.config["work"] == 16)] * rounds for plan in plans]

    def alternating_us(self, plans: Any) -> list[list[float]]:
        return [[self.cost(plan.config)] * 20 for plan in plans]

    def cost(self, config: Any) -> float:
        return 10.0 + abs(config["work"] - 64) / 16 + (config["formats"] != "mixed")


@pytest.fixture
def nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have plans built with kernels that are not there: `MadeUpTimes` runs none."""
    monkeypatch.setitem(sys.modules, "spmark.impls.tuning.timer", SimpleNamespace(timer_of=MadeUpTimes))
    monkeypatch.setattr(
        type(open_target(HOST)), "load", lambda self, instances: [SimpleNamespace(instance=i) for i in instances]
    )


@pytest.mark.usefixtures("nothing_compiled")
def test_the_fastest_that_is_right_is_kept() -> None:
    problem = Problem(Op.SPMM, banded(), 64, DType.FLOAT16)
    calibration, _ = calibration_for("", Op.SPMM, DType.FLOAT16)
    asked = [(Rules(), 0), (Rules(formats=Formats.OTHER), 64)]
    forms = forms_of(problem.matrix, asked, calibration, 64)
    assert len({(str(form.formats), form.widest) for form in forms}) == len(forms) >= 4
    plan = fastest(problem, open_target(HOST), forms, {})
    told = plan.search
    assert told is not None
    best = min((c for c in told.seen if c.samples_us), key=lambda candidate: np.median(candidate.samples_us))
    assert plan.config.items() >= best.config.items()
    assert (plan.config["formats"], plan.config["work"]) == ("other", 64)
    assert told.cores == cores()
    assert told.candidates == len(told.seen)
    assert told.run_s > 0
    assert told.compile_s >= 0
    assert {len(c.samples_us) for c in told.seen} == {0, 5, 10, 30}  # wrong, far behind, near, and in the last round
    assert told.measured == sum(bool(candidate.samples_us) for candidate in told.seen)
    assert any(candidate.reason == "wrong result" for candidate in told.seen)
    assert all(candidate.predicted for candidate in told.seen)
    blocks = [form for form in forms if form.formats is Formats.BLOCKS]
    with pytest.raises(BuildError, match="wrong result"):
        fastest(problem, open_target(HOST), blocks, {})


@pytest.mark.usefixtures("nothing_compiled")
def test_schedules_of_sddmm_race_for_blocks_and_for_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def cost(self: MadeUpTimes, config: Any) -> float:
        return 10.0 + abs(config.get("run", 3) - 8) + config["batch"] / 10 + 5 * (config["formats"] == "mixed")

    together: list[int] = []

    def load(self: Any, instances: Any) -> list[Any]:
        return [SimpleNamespace(instance=instance) for instance in instances]

    monkeypatch.setattr(type(open_target(HOST)), "load", load)
    monkeypatch.setattr(type(open_target(HOST)), "begin", lambda self, some: together.append(len(some)))
    monkeypatch.setattr(MadeUpTimes, "cost", cost)
    problem = Problem(Op.SDDMM, banded(), 64, DType.FLOAT16)
    calibration, _ = calibration_for("", Op.SDDMM, DType.FLOAT16)
    forms = forms_of(problem.matrix, [(Rules(), 0)], calibration, 64)
    assert {form.has_blocks for form in forms} == {False, True}
    plan = fastest(problem, open_target(HOST), forms, {"order": "csr"})
    told = plan.search
    assert told is not None
    assert (plan.config["formats"], plan.config["run"]) == ("other", 8)
    reasons = {(one.config["formats"], one.reason) for one in told.seen}
    assert reasons == {("other", ""), ("mixed", ""), ("blocks", "wrong result")}
    assert {"groups" in one.config for one in told.seen} == {False, True}
    assert max(together) > 2, "kernels are compiled side by side"


def test_wider_rows_compete_only_where_nothing_is_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spmark.impls.stile.search.forms_of", lambda *args: [widest for _, widest in args[1]])
    problem = Problem(Op.SPMM, banded(), 64, DType.FLOAT16)
    calibration, _ = calibration_for("", Op.SPMM, DType.FLOAT16)
    for config, widths in (
        ({}, [0, 128, 512]),
        ({"levels": 1}, [0, 128, 512]),
        ({"mode": "paper"}, [0]),
        ({"formats": "blocks"}, [0]),
    ):
        assert Stile(**config).forms(problem, calibration, measured=True) == widths, config
        assert len(Stile(**config).forms(problem, calibration, measured=False)) == 1


@pytest.mark.full
def test_a_kept_mixture_has_its_levels_and_no_rival() -> None:
    problem = Problem(Op.SPMM, banded(1024, 32), 32, DType.FLOAT16)
    kept = Stile(keep_mixture=True)
    calibration, _ = kept.priced_by(problem, HOST)
    (form,) = kept.forms(problem, calibration, measured=True)
    rivals = Stile().forms(problem, calibration, measured=True)
    assert form.formats is Formats.MIXED
    assert len(rivals) > 1
    plan = run(problem, kept)
    assert (plan.config["formats"], plan.config["keep_mixture"]) == ("mixed", True)
    assert plan.config["levels_used"] == form.levels > 1
    one = run(problem, Stile(keep_mixture=True, levels=1, rearrange=False))
    assert one.config["levels_used"] == 1
    assert one.stored != plan.stored


def test_a_mixture_is_kept_only_where_there_are_blocks(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected formats: mixed with keep_mixture, found other"):
        Stile(keep_mixture=True, formats="other")
    sddmm = Problem(Op.SDDMM, banded(), 64, DType.FLOAT32)
    assert "for block tiles, found float32" in str(Stile(keep_mixture=True).unsupported(sddmm, HOST))
    spmm = Problem(Op.SPMM, banded(), 64, DType.FLOAT32)
    with pytest.raises(UnsupportedError, match=f"{PUBLISHED}: expected costs of block tiles for spmm in float32"):
        Stile(keep_mixture=True).build(spmm, HOST)


@pytest.mark.parametrize("size", [1024, 4096])
def test_figure_12_compares_two_plans(size: int) -> None:
    spec = MatrixSpec(source="patterns", name=f"interleaved_{size}")
    matrix = load_matrix(spec, Cache.default(), 0).csr
    calibration, _ = calibration_for("nvidia-h200", Op.SPMM, DType.FLOAT16)
    rules = Rules(withdraw=False, keep_mixture=True)
    one = search(matrix, calibration, 32, replace(rules, levels=1, rearrange=False))
    many = search(matrix, calibration, 32, rules)
    assert one.levels == 1 < many.levels
    assert many.predicted_ms < 0.98 * one.predicted_ms
