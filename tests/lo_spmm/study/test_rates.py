"""The fit of the estimate's rates: made-up rates come back, and the shipped rows say what the notes say of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from spmark.impls.core.contracts import TrainingJob
from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import DatasetError
from spmark.impls.lo_spmm.estimate import Work, estimate
from spmark.impls.lo_spmm.rank import RankModel, find
from spmark.impls.lo_spmm.study.commands import RankTraining
from spmark.impls.lo_spmm.study.labels import TileLabels, read_labels
from spmark.impls.lo_spmm.study.rates import NAMES, Priced, estimated, fitted, held_out, priced, regret
from spmark.impls.runtime.device import shipped_calibration

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[3]
H200 = DeviceSpec.load(shipped_calibration("nvidia-h200"))
ROWS = ROOT / "impls/lo_spmm/models/h200-rows.jsonl.gz"
SHIPPED = np.ones(len(NAMES))


@pytest.fixture(scope="module")
def rows() -> list[TileLabels]:
    return read_labels([ROWS])


@pytest.fixture(scope="module")
def problems(rows: list[TileLabels]) -> list[Priced]:
    return priced(rows, H200)


def test_shipped_rows_are_of_the_tuning_half_and_of_seeds(rows: list[TileLabels]) -> None:
    listed = yaml.safe_load((ROOT / "datasets/sweeps/matrices/tuning_layers.yaml").read_text())
    tuning = {f"{one['source']}/{name}" for one in listed for name in one["names"]}
    layers = {row.matrix for row in rows if row.matrix}
    assert (len(rows), len(layers)) == (107, 39)
    assert layers <= tuning


def test_shipped_rates_are_the_estimate(rows: list[TileLabels], problems: list[Priced]) -> None:
    for row, problem in zip(rows, problems, strict=True):
        expected = [estimate(Work(*one.work), H200).cycles for one in row.tried if one.samples_us]
        np.testing.assert_allclose(estimated(problem.parts, SHIPPED), expected, rtol=1e-12)


def test_shipped_rows_give_the_figures_of_the_readme(problems: list[Priced]) -> None:
    shipped, refitted = held_out(problems)
    assert (shipped, refitted) == (pytest.approx(0.0526, abs=5e-5), pytest.approx(0.0369, abs=5e-5))
    factors = dict(zip(NAMES, fitted(problems), strict=True))
    assert [factors[name] for name in ("data", "code", "chain", "together")] == pytest.approx(
        [1.29, 0.89, 0.71, 0.87], abs=0.005
    )


def test_made_up_rates_come_back(problems: list[Priced]) -> None:
    true = np.array([1.0, 1.3, 0.7, 1.2, 0.8, 1.1, 1.0, 1.2, 1.0, 0.9])
    made_up = [replace(one, cycles=estimated(one.parts, true) + 7000) for one in problems]
    found = fitted(made_up)
    before, after = (np.mean([regret(one, factors) for one in made_up]) for factors in (SHIPPED, found))
    assert after < before / 4
    for one in made_up:
        wanted = estimated(one.parts, true)
        np.testing.assert_allclose(estimated(one.parts, found) / wanted, 1, atol=0.25)


def test_regret_is_the_choice_over_the_best() -> None:
    parts = np.zeros((2, 9))
    parts[:, 0] = (100, 200)
    assert regret(Priced(parts, np.array([30.0, 10.0]), (1, 1, 1)), SHIPPED) == pytest.approx(np.log(3))


def test_each_problem_counts_once(problems: list[Priced]) -> None:
    """A problem whose candidates are all there twice changes nothing."""
    doubled = [replace(one, parts=np.tile(one.parts, (2, 1)), cycles=np.tile(one.cycles, 2)) for one in problems[:30]]
    np.testing.assert_allclose(fitted(doubled), fitted(problems[:30]), rtol=1e-3)


def test_the_card_says_what_the_choice_costs(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    job = TrainingJob("mine", tmp_path / "mine.json", "spmark train lo_spmm --labels h200-rows.jsonl.gz", [ROWS])
    card = RankTraining().train(job).answer["card"]
    assert card["groups"] == 29
    assert (card["held_out"]["regret_of_estimate"], card["held_out"]["regret_of_refitted_estimate"]) == (0.0526, 0.0369)
    assert 0 < card["held_out"]["kendall_tau"] < find("h200").card.held_out["kendall_tau"]
    assert ", data 1.29, " in card["made_with"]["factors_of_refitted_rates"]
    assert RankModel.load(job.out).card.model_dump() == card


def test_what_is_not_told_is_left_out_or_refused(rows: list[TileLabels], problems: list[Priced]) -> None:
    untimed = [one.model_copy(update={"samples_us": (), "reason": "broken"}) for one in rows[0].tried]
    without_work = [one.model_copy(update={"work": ()}) for one in rows[1].tried]
    changed = [
        row.model_copy(update={"tried": tuple(tried)})
        for row, tried in zip(rows[:2], (untimed, without_work), strict=True)
    ]
    assert priced(changed, H200) == []
    with pytest.raises(DatasetError, match="at least 5 shapes, found 1"):
        held_out(problems[:1])
