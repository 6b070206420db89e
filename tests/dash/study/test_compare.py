"""The study: all methods have facts, a killed study goes on to the same facts, and no matrix is learnt and judges."""

from __future__ import annotations

import gzip
import json
import math
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from collected_fakes import load, row_of, write_rows

from spmark.impls.core.contracts import StudyJob
from spmark.impls.core.errors import DatasetError, RecordError, SweepError
from spmark.impls.core.problem import Op
from spmark.impls.core.sixdigits import six_digits
from spmark.impls.core.transferfacts import TransferCost, TransferCurve, TransferFact, TransferResult, TransferRun
from spmark.impls.core.transferfacts import read_transfers as read
from spmark.impls.dash.study.commands import TransferTraining
from spmark.impls.dash.study.methods import HEADLINE, MODELS
from spmark.impls.dash.study.tasks import METHODS, Sizes, StudyTask, tasks

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


def test_numbers_of_facts_have_six_digits(whole: Path) -> None:
    facts = [json.loads(fact.model_dump_json()) for fact in facts_of(whole) if not isinstance(fact, TransferRun)]
    assert {fact["kind"] for fact in facts} == {"cost", "curve", "result"}
    assert six_digits(facts) == facts


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


def test_sizes_of_fine_tuning_stand_beside(whole: Path) -> None:
    results = [fact for fact in facts_of(whole) if isinstance(fact, TransferResult)]
    assert {one.method for one in results if one.target_matrices == 1} == {"dash", "scratch"}


def test_models_have_curves_and_everything_has_its_seconds(whole: Path) -> None:
    facts = facts_of(whole)
    curves = [fact for fact in facts if isinstance(fact, TransferCurve) and fact.target_matrices != 1]
    assert {fact.method for fact in curves} == MODELS.keys()
    of_dash = [(fact.phase, fact.epoch) for fact in curves if fact.method == "dash"]
    assert of_dash == [(phase, epoch) for phase in ("pre-training", "fine-tuning") for epoch in (1, 2)]
    assert {fact.phase for fact in curves if fact.method == "scratch"} == {"fine-tuning"}
    last = [fact for fact in curves if fact.method == "dash"][-1]
    assert "held_tau" in last.values
    assert last.seconds > 0
    costs = [fact for fact in facts if isinstance(fact, TransferCost)]
    assert {fact.what for fact in costs if fact.method == "dash"} == {
        "collect", "pretrain", "finetune", "features", "score"
    }  # fmt: skip
    spent = [fact.seconds for fact in costs if (fact.method, fact.what) == ("zero_shot", "collect")]
    samples = [one for seed in SEEDS["source"] for one in row_of("cpu", seed).configs]
    assert spent == [pytest.approx(1e-6 * sum(one.chosen_by_us[0] + one.valued_by_us[0] for one in samples))]


def test_main_models_and_what_made_the_facts_are_kept(whole: Path) -> None:
    kept = {path.name.split("-")[2] for path in (whole / "out" / "models").iterdir()}
    assert kept == set(HEADLINE)
    (run,) = [fact for fact in facts_of(whole) if isinstance(fact, TransferRun)]
    assert run.samples.keys() == {f"{kind}/spade_sim/{kind}.jsonl" for kind in SEEDS}
    assert "torch" in run.versions


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


def test_what_is_left_when_the_time_is_up_is_counted(tmp_path: Path) -> None:
    outcome = study(job(tmp_path, ends=0.0))
    assert outcome.left == 5
    assert not (tmp_path / "out" / "transfers.jsonl").exists()


def test_facts_of_other_samples_are_refused(tmp_path: Path) -> None:
    of = job(tmp_path, methods=("random5",))
    study(of)
    write_rows(of.evaluation[0], [row_of("spade_sim", 22)])
    with pytest.raises(RecordError, match=r"and its samples, found those of 'study'; name another folder with --out"):
        study(of)


def test_a_method_without_its_library_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    outcome = study(job(tmp_path, methods=("lightgbm", "random5")))
    assert outcome.left == 1
    assert "expected LightGBM for training, found none" in outcome.answer["left_out"]["lightgbm"]
    assert "lightgbm is left out" in outcome.line
    assert {fact.method for fact in facts_of(tmp_path) if isinstance(fact, TransferResult)} == {"random5"}


def test_a_size_that_nothing_is_learnt_from_is_left_out(tmp_path: Path) -> None:
    alike, rest = (row_of("spade_sim", seed) for seed in SEEDS["target"])
    times = {"chosen_by_us": (5.0,), "valued_by_us": (5.0,)}
    alike = alike.model_copy(update={"configs": tuple(one.model_copy(update=times) for one in alike.configs)})
    write_rows(tmp_path / "spade_sim" / "target.jsonl", [alike, rest])
    outcome = study(job(tmp_path, methods=("dash",)))
    assert outcome.left == 1
    assert "two configs whose times differ" in outcome.answer["left_out"]["dash"]
    assert "(spmm, 2 and 1 matrices)" in outcome.line
    assert {fact.target_matrices for fact in facts_of(tmp_path) if isinstance(fact, TransferResult)} == {2}


def test_a_rule_of_the_target_stands_beside_where_there_is_one(tmp_path: Path) -> None:
    study(job(tmp_path, target="cuda", methods=("rule_ck", "target_best")))
    ruled = [fact for fact in facts_of(tmp_path) if isinstance(fact, TransferResult) and fact.method == "rule_ck"]
    assert len(ruled) == 2
    assert all(fact.top1_us == fact.default_us for fact in ruled), "the default is the rule with one partition"


def test_a_matrix_whose_default_has_no_samples_judges_nothing(tmp_path: Path) -> None:
    rows = [row_of("spade_sim", seed) for seed in SEEDS["evaluation"]]
    first = rows[0].configs[0].model_copy(update={"chosen_by_us": (), "valued_by_us": (), "reason": "too large"})
    rows[0] = rows[0].model_copy(update={"configs": (first, *rows[0].configs[1:])})
    write_rows(tmp_path / "spade_sim" / "evaluation.jsonl", rows)
    told: list[str] = []
    study(job(tmp_path, methods=("random5",), tell=told.append))
    assert [fact.matrix for fact in facts_of(tmp_path) if isinstance(fact, TransferResult)] == ["made/21"]
    assert told[0] == "made/20 judges nothing: its default config has no samples: too large"


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


def test_several_problems_of_one_matrix_judge_nothing(tmp_path: Path) -> None:
    rows = [row_of("spade_sim", 20)] * 2
    write_rows(tmp_path / "spade_sim" / "evaluation.jsonl", rows)
    with pytest.raises(DatasetError, match="expected one problem of spmm for each matrix that judges, found 2"):
        study(job(tmp_path))


def test_compressed_samples_are_samples(tmp_path: Path) -> None:
    of = job(tmp_path, methods=("random5",))
    packed = tmp_path / "evaluation.jsonl.gz"
    packed.write_bytes(gzip.compress(of.evaluation[0].read_bytes()))
    study(replace(of, evaluation=[packed]))
    assert len([fact for fact in facts_of(tmp_path) if isinstance(fact, TransferResult)]) == 2


def test_main_models_have_every_seed_and_variants_two() -> None:
    found = list(tasks(METHODS, 5, Sizes(100, 100), Sizes(5, 12)))
    main = Counter(task.method for task in found if task.source_matrices in {0, 100} and task.target_matrices in {0, 5})
    assert {main[method] for method in (*HEADLINE, "random5")} == {5}
    assert {main[method] for method in MODELS.keys() - set(HEADLINE)} == {2}
    assert {main[method] for method in ("target_best", "rule_ck", "lightgbm", "lightgbm_source")} == {1}
    assert found.index(StudyTask("dash", 1, 100, 5)) > found.index(StudyTask("lightgbm", 0, 0, 5))
    dash = {(task.source_matrices, task.target_matrices) for task in found if task.method == "dash"}
    assert dash == {(100, 5), (5, 5), (20, 5), (100, 1), (100, 3), (100, 7), (100, 10)}
    assert len(found) == len(set(found))
