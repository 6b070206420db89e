"""The study: all methods have facts, a killed study goes on to the same facts, and no matrix is learnt and judges."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from collected_fakes import load, row_of, write_rows

from spmark.impls.core.errors import DatasetError, RecordError, SweepError
from spmark.impls.core.problem import Op
from spmark.studies.contracts import StudyJob
from spmark.studies.dash.commands import TransferTraining
from spmark.studies.dash.methods import METHODS
from spmark.studies.transferfacts import TransferCost, TransferCurve, TransferFact, TransferResult
from spmark.studies.transferfacts import read_transfers as read

pytestmark = pytest.mark.full

pytest.importorskip("torch", reason="PyTorch is not installed (extra dash)")
pytest.importorskip("safetensors", reason="safetensors is not installed (extra dash)")

SEEDS = {"source": (0, 1), "target": (10, 11), "evaluation": (20, 21)}
FEW = ("dash", "zero_shot", "no_mapper", "random5")


def job(folder: Path, target: str = "spade_sim", **changes: Any) -> StudyJob:
    """Give a study of two matrices of each kind, whose samples are written into a folder."""
    files = {kind: [folder / target / f"{kind}.jsonl"] for kind in SEEDS}
    for kind, seeds in SEEDS.items():
        if not files[kind][0].exists():
            platform = "cpu" if kind == "source" else target
            write_rows(files[kind][0], [row_of(platform, seed) for seed in seeds])
    counts = {"source_matrices": 2, "target_matrices": 2, "seeds": 1, "epochs": 2}
    rest = {"methods": FEW, "op": None, "ends": math.inf, "load": load, "out": folder / "out", "command": "study"}
    return StudyJob(**{**files, **counts, **rest, "commit": "", "tell": lambda _: None, **changes})


def facts_of(folder: Path) -> list[TransferFact]:
    return list(read([folder / "out" / "transfers.jsonl"]))


def study(of: StudyJob) -> Any:
    return TransferTraining().study(of)


def lasting(facts: list[TransferFact]) -> Counter[str]:
    """Give the facts without seconds, which no two runs share."""
    return Counter(fact.model_dump_json(exclude={"seconds"}) for fact in facts)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Study all methods."""
    pytest.importorskip("lightgbm", reason="LightGBM is not installed (extra train)")
    folder = tmp_path_factory.mktemp("whole")
    outcome = study(job(folder, methods=()))
    assert (outcome.left, outcome.answer["left_out"]) == (0, {})
    return folder


def test_every_method_orders_the_same_configs(whole: Path) -> None:
    results = [fact for fact in facts_of(whole) if isinstance(fact, TransferResult)]
    main = [one for one in results if one.target_matrices in {0, 2}]
    names = [(method, f"made/{seed}") for method in METHODS if method != "rule_ck" for seed in SEEDS["evaluation"]]
    assert sorted((one.method, one.matrix) for one in main) == sorted(names)
    rows = {row.matrix: row for row in (row_of("spade_sim", seed) for seed in SEEDS["evaluation"])}
    for one in results:
        times = [sampled.valued_by_us[0] for sampled in rows[one.matrix].configs]
        assert (one.default_us, one.optimum_us, one.configs) == pytest.approx((times[0], min(times), 6))
        assert one.optimum_us <= one.top5_us <= one.top1_us
        assert (one.opa_ceiling, one.tau_ceiling) == (1.0, pytest.approx(1.0))
        assert (one.target, one.op, one.note) == ("spade_sim", Op.SPMM, "made up")
    assert {one.source for one in results if one.method in {"scratch", "random5", "lightgbm"}} == {""}
    assert {one.source_matrices for one in results if one.source} == {2}


class Killed(BaseException):
    """Stands for a signal."""


def killer(lines: int) -> Callable[[str], None]:
    left = iter(range(lines))

    def tell(_: str) -> None:
        if next(left, None) is None:
            raise Killed

    return tell


def test_shards_of_seeds_are_together_the_whole_study(tmp_path: Path) -> None:
    asked = job(tmp_path, methods=("dash", "random5"), seeds=3)
    assert study(asked).left == 0
    facts = []
    for number in (1, 2):
        folder = tmp_path / f"part{number}"
        outcome = study(replace(asked, out=folder, shard=(number, 2)))
        assert outcome.left == 0
        found = list(read([folder / "transfers.jsonl"]))
        assert {one.seed for one in found if isinstance(one, TransferResult)} == ({0, 2} if number == 1 else {1})
        facts += found
    results = lasting([one for one in facts_of(tmp_path) if isinstance(one, TransferResult)])
    assert lasting([one for one in facts if isinstance(one, TransferResult)]) == results


def test_a_killed_study_goes_on_to_the_same_facts(tmp_path: Path) -> None:
    study(job(tmp_path / "straight"))
    torn, stops = tmp_path / "torn", 0
    for lines in (1, 2, 3, 100):
        try:
            outcome = study(job(torn, tell=killer(lines)))
        except Killed:
            stops += 1
            facts = torn / "out" / "transfers.jsonl"
            if facts.exists():
                facts.write_bytes(facts.read_bytes()[:-30])
    assert stops == 3
    assert outcome.left == 0
    assert lasting(facts_of(torn)) == lasting(facts_of(tmp_path / "straight"))
    before = (torn / "out" / "transfers.jsonl").read_bytes()
    assert study(job(torn)).answer["made"] == 0
    assert (torn / "out" / "transfers.jsonl").read_bytes() == before


def test_a_training_that_moves_costs_seconds_on_each_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = job(tmp_path, methods=("zero_shot",), tell=killer(1))
    monkeypatch.setattr("spmark.studies.dash.training._SAVED_EVERY_S", 0)
    with pytest.raises(Killed):
        study(of)
    monkeypatch.setattr("spmark.studies.dash.training.computer", lambda device: ("another", 3))
    study(replace(of, tell=lambda _: None))
    costs = [one for one in facts_of(tmp_path) if isinstance(one, TransferCost) and one.what == "pretrain"]
    assert [one.machine for one in costs] == ["cpu", "another"]
    assert costs[1].cores == 3
    total = max(one.seconds for one in facts_of(tmp_path) if isinstance(one, TransferCurve))
    assert sum(one.seconds for one in costs) == pytest.approx(total, rel=1e-4)


def test_facts_of_other_samples_are_refused(tmp_path: Path) -> None:
    of = job(tmp_path, methods=("random5",))
    study(of)
    write_rows(of.evaluation[0], [row_of("spade_sim", 22)])
    with pytest.raises(RecordError, match=r"and its samples, found those of 'study'; name another folder with --out"):
        study(of)


def test_a_method_without_its_library_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    outcome = study(job(tmp_path, methods=("lightgbm", "random5")))
    assert outcome.left == 2, "one for each number of target matrices"
    assert "expected LightGBM, found none" in outcome.answer["left_out"]["lightgbm"]
    assert "lightgbm is left out" in outcome.line
    assert {fact.method for fact in facts_of(tmp_path) if isinstance(fact, TransferResult)} == {"random5"}


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"methods": ("dish",)}, SweepError, "expected a method out of dash, .* found 'dish'"),
        ({"op": Op.SDDMM}, DatasetError, "expected samples of sddmm in all files, found none"),
        ({"evaluation": "target"}, DatasetError, "no training has seen, found made/10, made/11 in both"),
        ({"evaluation": "source"}, DatasetError, "expected held-out samples of spade_sim, found cpu"),
        ({"target_matrices": 3}, DatasetError, "expected samples of 3 matrices, found 2"),
    ],
)
def test_what_would_mislead_is_refused(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    of = job(tmp_path)
    files = {key: getattr(of, value) for key, value in changes.items() if key == "evaluation"}
    with pytest.raises(error, match=message):
        study(replace(of, **{**changes, **files}))
