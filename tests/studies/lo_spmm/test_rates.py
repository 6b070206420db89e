"""The fit of the estimate's rates: made-up rates come back, and the shipped rows say what the notes say of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from spmark.datasets.origins import other_ids
from spmark.datasets.sweep.reading import packaged_lists, read_list
from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import DatasetError
from spmark.impls.lo_spmm.rank import RankModel, find
from spmark.impls.runtime.device import shipped_calibration
from spmark.studies.contracts import TrainingJob
from spmark.studies.lo_spmm.commands import RankTraining
from spmark.studies.lo_spmm.labels import TileLabels, read_labels
from spmark.studies.lo_spmm.rates import NAMES, Priced, fitted, held_out, priced

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[3]
H200 = DeviceSpec.load(shipped_calibration("nvidia-h200"))
ROWS = ROOT / "impls/lo_spmm/models/h200-rows.jsonl.gz"


@pytest.fixture(scope="module")
def rows() -> list[TileLabels]:
    return read_labels([ROWS])


@pytest.fixture(scope="module")
def problems(rows: list[TileLabels]) -> list[Priced]:
    return priced(rows, H200)


def test_shipped_rows_are_of_the_tuning_half_and_of_seeds(rows: list[TileLabels]) -> None:
    tuning = {next(other_ids(spec)) for spec in read_list(packaged_lists()["tuning_layers"])}
    layers = {row.matrix for row in rows if row.matrix}
    assert (len(rows), len(layers)) == (107, 39)
    assert layers <= tuning


def test_shipped_rows_give_the_figures_of_the_readme(problems: list[Priced]) -> None:
    shipped, refitted = held_out(problems)
    assert (shipped, refitted) == (pytest.approx(0.0526, abs=5e-5), pytest.approx(0.0369, abs=5e-5))
    factors = dict(zip(NAMES, fitted(problems), strict=True))
    assert [factors[name] for name in ("data", "code", "chain", "together")] == pytest.approx(
        [1.29, 0.89, 0.71, 0.87], abs=0.005
    )


def test_the_card_says_what_the_choice_costs(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    job = TrainingJob("mine", tmp_path / "mine.json", "spmark study train lo_spmm --labels h200-rows.jsonl.gz", [ROWS])
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
