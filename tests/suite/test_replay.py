"""``spmark study replay``: which configs are judged, by which model, what is left out and why, and the T4 export."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from candidate_records import write_manifest
from typer.testing import CliRunner

from spmark.datasets.cache import Cache
from spmark.datasets.load import load_matrix
from spmark.datasets.sweep.model import MatrixSpec
from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import RecordError, SweepError
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.runtime.device import shipped_calibration
from spmark.impls.table import cost_model, create
from spmark.records.rowfile import RecordFile
from spmark.records.schema import (
    CandidateRow,
    CaseSpec,
    Environment,
    EnvironmentRow,
    MatrixRef,
    Measurement,
    Status,
)
from spmark.suite.cli import main as cli
from spmark.suite.study.replay import RANDOM, RECORDED, Replayed, judged, replay

H200 = DeviceSpec.load(shipped_calibration("nvidia-h200"))
ENVIRONMENT = Environment(device=H200, packages={}, cpu="c", cores=2, memory_bytes=1, system="s")
SCHEMA = json.loads((Path(__file__).parent / "t4_results.json").read_text())
MATRIX = load_matrix(MatrixSpec(source="patterns", name="logsparse_64"), Cache(), 0).csr
SIZES = [{"tile_rows": rows, "threads": 32, "cpt": 1, "tiles_per_block": 1} for rows in (2, 4, 8, 16)]
"""As they were recorded before columns of A were cut."""
Seen = Sequence[tuple[Mapping[str, Any], float | None, Sequence[float]]]


def record(**changes: Any) -> Measurement:
    fields: dict[str, Any] = {
        "case_id": "", "implementation_version": "v1", "op": Op.SPMM, "matrix": "logsparse_64", "source": "patterns",
        "matrix_hash": MATRIX.hash, "seed": 0, "width": 64, "dtype": DType.FLOAT32, "device": H200.name,
        "device_kind": DeviceKind.CUDA, "implementation": "lo_spmm", "status": Status.OK, "samples_us": [9.0],
        "environment": ENVIRONMENT.digest,
    } | changes  # fmt: skip
    fields.setdefault("label", fields["implementation"])
    name = f"{fields['source']}/{fields['matrix']}/J{fields['width']}/{fields['implementation']}"
    pins = json.dumps(fields.get("requested", {}))
    return Measurement(**fields | {"case_id": fields["case_id"] or f"{name}#{pins}"})


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write records, each with what its search saw: (config, prediction, samples)."""

    def write(*told: tuple[Measurement, Seen], packed: bool = False, name: str = "run") -> Path:
        folder = tmp_path / name
        with RecordFile(folder / "environments.jsonl") as file:
            file.append(EnvironmentRow(digest=ENVIRONMENT.digest, environment=ENVIRONMENT))
        with RecordFile(folder / "records.jsonl") as file:
            file.append_all([row for row, _ in told])
        rows = [
            CandidateRow(
                case_id=row.case_id, implementation_version=row.spec.implementation_version,
                environment=row.environment, config=dict(config), predicted=predicted, samples_us=list(samples),
                reason="" if samples or predicted is not None else "wrong result: far off",
            )
            for row, seen in told
            for config, predicted, samples in seen
        ]  # fmt: skip
        with RecordFile(folder / "candidates.jsonl") as file:
            file.append_all(rows)
        for plain in [*folder.glob("[rc]*.jsonl")] if packed else []:
            plain.with_name(plain.name + ".gz").write_bytes(gzip.compress(plain.read_bytes()))
            plain.unlink()
        return folder

    return write


SEEN: Seen = [(size, 10.0 - place, [8.0 + place, 1.0, 90.0]) for place, size in enumerate(SIZES)]


@pytest.mark.parametrize("packed", [False, True])
def test_what_searches_predicted_is_replayed(write: Callable[..., Path], packed: bool) -> None:
    folder = write((record(), [*SEEN, ({"tile_rows": 32}, 1.0, [])]), packed=packed)
    ((one, scores),) = replay([folder], RECORDED).scored
    assert scores.tolist() == [10, 9, 8, 7]
    assert one.times_us.tolist() == [8, 9, 10, 11]
    assert [row.config for row in one.measured] == SIZES


def test_of_a_case_that_was_searched_again_the_last_search_counts(write: Callable[..., Path]) -> None:
    later = record(implementation_version="later", started_at=record().started_at + timedelta(hours=1))
    replayed = replay([write((later, SEEN[:2]), (record(), SEEN))], RECORDED)
    assert [one.record.spec.implementation_version for one, _ in replayed.scored] == ["later"]
    assert [one.reason for one in replayed.left_out] == ["a later search of the case counts"]


@pytest.mark.parametrize("model", ["estimate", "rank"])
def test_models_score_anew_on_the_matrix_of_the_source(write: Callable[..., Path], model: str) -> None:
    pinned = record(requested={"order": "none"})
    scored = {
        one.record.case_id: scores for one, scores in replay([write((record(), SEEN), (pinned, SEEN))], model).scored
    }
    problem = Problem(Op.SPMM, MATRIX, 64, DType.FLOAT32)
    for case, config in ((record(), {}), (pinned, {"order": "none"})):
        expected = cost_model(create("lo_spmm", config), model, H200).score(problem, SIZES)
        assert scored[case.case_id].tolist() == expected.tolist()
        assert np.isfinite(expected).all()


def test_arguments_of_a_source_are_those_of_the_record(write: Callable[..., Path]) -> None:
    ref = MatrixRef(source="rmat", name="small", args={"scale": 6, "edge_factor": 4})
    made = record(matrix_hash=load_matrix(ref, Cache(), 0).csr.hash)
    spec = CaseSpec.model_validate(made.spec.model_dump(exclude={"case_id"}) | {"matrix": ref})
    folder = write((made.model_copy(update={"spec": spec}), SEEN))
    assert len(replay([folder], "estimate").scored) == 1


def test_the_random_floor_is_seeded_and_differs_by_case(write: Callable[..., Path]) -> None:
    folder = write((record(), SEEN), (record(width=128), SEEN))
    first, again = (np.array([scores for _, scores in replay([folder], RANDOM).scored]) for _ in range(2))
    other = np.array([scores for _, scores in replay([folder], RANDOM, seed=1).scored])
    assert np.array_equal(first, again)
    assert not np.any(first == other)
    assert not np.any(first[0] == first[1])


def test_cases_that_pin_one_implementation_differently_are_configs(write: Callable[..., Path]) -> None:
    rows = [
        record(
            implementation="liteform", requested={"format": "cell", "partitions": 1, "max_width": width},
            config={"partitions": 1, "max_width": min(width, 8), "cost": 1.0}, samples_us=[10.0 + width],
        )
        for width in (2, 8, 16)
    ]  # fmt: skip
    other = record(implementation="liteform", width=32, requested={"max_width": 2}, config={"partitions": 1})
    found = replay([write(*((row, []) for row in (*rows, other)))], "cost")
    ((one, scores),) = found.scored
    assert one.case.config == {"format": "cell", "partitions": 1}
    assert one.times_us.tolist() == [12, 26]  # 16 is the plan of 8, measured again
    configs = [{"partitions": 1, "max_width": width} for width in (2, 8)]
    model = cost_model(create("liteform"), "cost", H200)
    assert scores.tolist() == model.score(Problem(Op.SPMM, MATRIX, 64), configs).tolist()


def test_what_cannot_be_replayed_is_counted_with_its_reason(write: Callable[..., Path]) -> None:
    nowhere = record(matrix="elsewhere", source="npz")
    folder = write(
        (record(), SEEN),
        (record(matrix_hash="0" * 64, width=8), SEEN),
        (nowhere, SEEN),
        (record(width=16), SEEN[:1]),
        (record(width=32), [(size, 1.0, []) for size in SIZES]),
        (record(width=48), [(SIZES[0], 1.0, [2.0]), (SIZES[0] | {"split": 1}, 1.0, [3.0])]),
        (record(implementation="sparsetir"), SEEN),
        (record(implementation="gone"), SEEN),
        (record(environment="unknown"), SEEN),
        (record(requested={"order": "sideways"}), SEEN),
        (record(width=24), [({"tile_rows": 3}, None, [1.0]), ({"tile_rows": "many"}, None, [2.0])]),
    )
    lone = record(case_id="lone")
    with RecordFile(folder / "candidates.jsonl") as file:
        file.append(
            CandidateRow(case_id="lone", implementation_version="v1", environment=lone.environment, config={"a": 1})
        )
    found = replay([folder], "estimate")
    assert [one.record.spec.width for one, _ in found.scored] == [64]
    assert Counter(one.reason for one in found.left_out) == {
        "its source gives another matrix today": 1,
        "its matrix cannot be loaded": 1,
        "fewer than two of its configs were measured": 1,
        "its search measured nothing": 1,
        "all of its configs have the same score": 1,
        "sparsetir has no cost model estimate": 1,
        "gone has no cost model estimate": 1,
        "its environment is not recorded": 1,
        "the model refuses it": 2,
        "there is no record of the case": 1,
    }
    details = {one.case_id: one.detail for one in found.left_out if one.reason == "the model refuses it"}
    assert any("expected order out of" in detail for detail in details.values())
    assert any("configs that estimate can score" in detail for detail in details.values())


def test_an_unknown_model_and_a_filter_that_leaves_nothing_are_refused(write: Callable[..., Path]) -> None:
    folder = write((record(), SEEN))
    with pytest.raises(SweepError, match="expected a cost model out of estimate, random, rank, recorded"):
        replay([folder], "estimates")
    with pytest.raises(SweepError, match="--only width=7: expected it to leave a case"):
        replay([folder], RECORDED, only=["width=7"])
    with pytest.raises(RecordError, match="expected a record file"):
        replay([folder / "none"], RECORDED)


def test_candidates_that_are_published_apart_are_asked_for(
    write: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    apart, here = write((record(), SEEN), name="apart"), write((record(width=128), SEEN), name="here")
    (apart / "candidates.jsonl").unlink()
    write_manifest(tmp_path, files=[{"path": "apart/candidates.jsonl.gz", "bytes": 9, "sha256": "0" * 64}])
    with pytest.raises(RecordError, match=r"beside the records of apart, found none: .*`spmark fetch candidates"):
        replay([apart], RECORDED)
    assert "fetch" not in caplog.text
    assert len(replay([apart, here], RECORDED, only=["width=128"]).scored) == 1
    assert "beside the records of apart, found none" in caplog.text


def test_judgements_are_a_row_for_each_problem(write: Callable[..., Path]) -> None:
    seen = [
        (config, float(score), [us])
        for config, score, us in zip(SIZES, (3, 1, 2, 4), (9.0, 6.0, 5.0, 7.0), strict=True)
    ]
    frame = judged(replay([write((record(), seen))], RECORDED))
    (row,) = frame.to_dict("records")
    assert (row["implementation"], row["source"], row["candidates"]) == ("lo_spmm", "patterns", 4)
    assert row["regret"] == pytest.approx(0.2)
    assert (row["top_1"], row["top_5"]) == (0, 1)
    assert judged(Replayed()).empty


def invoke(*words: object) -> Any:
    return CliRunner().invoke(cli.app, ["study", "replay", *map(str, words)])


def test_the_command_shows_a_table_and_what_is_left_out(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")  # a narrow terminal folds cells
    ended = invoke(write((record(), SEEN), (record(width=16), SEEN[:1])))
    assert ended.exit_code == 0, ended.output
    line = next(line for line in ended.output.splitlines() if "lo_spmm" in line and "patterns" in line)
    assert [word.strip() for word in line.strip("│ ").split("│")] == [
        "lo_spmm", "patterns", "1", "4", "37.5%", "37.5%", "37.5%", "18.8%", "-1.00", "0%", "100%", "100%",
    ]  # fmt: skip
    assert "fewer than two of its configs were measured" in ended.output


def test_the_command_answers_in_json(write: Callable[..., Path]) -> None:
    ended = invoke(write((record(), SEEN), (record(width=16), SEEN[:1])), "--model", "random", "--seed", 3, "--json")
    told = json.loads(ended.stdout)
    assert (told["model"], told["seed"]) == ("random", 3)
    assert [case["case_id"] for case in told["cases"]] == [record().case_id]
    assert told["cases"][0].keys() >= {"regret", "tuned_regret", "kendall", "top_1", "candidates", "source"}
    assert [(row["implementation"], row["cases"]) for row in told["summary"]] == [("lo_spmm", 1)]
    assert told["left_out"][0]["reason"] == "fewer than two of its configs were measured"


@pytest.mark.full
@pytest.mark.parametrize("sweep", ["stile_fig14_cost_model", "stile_modes"])
def test_a_published_search_is_scored_anew_as_it_was(sweep: str) -> None:
    """What a record says that the model predicted is what the model predicts now, where it searches as it did."""
    folder = Path(__file__).parents[2] / "report" / "reference" / "h200" / sweep
    only = ["matrix=logsparse_4096", "op=spmm", "dtype=float16", "label=stile,stile_mlp"]
    recorded, priced = (replay([folder], model, only=only).scored for model in (RECORDED, "prices"))
    assert len(recorded) > 1
    for (one, told), (again, anew) in zip(recorded, priced, strict=True):
        assert one.record.case_id == again.record.case_id
        # Plans straight from CSR have no score, and rows in another order are no longer searched.
        moved = np.array([row.config.get("rows") == "near" for row in one.measured])
        assert np.isfinite(told[~moved]).any() and not np.isfinite(anew[moved]).any(), one.record.case_id
        np.testing.assert_array_equal(anew[~moved], told[~moved], one.record.case_id)


def test_t4_says_what_was_measured_and_what_failed(write: Callable[..., Path], tmp_path: Path) -> None:
    seen = [*SEEN, (SIZES[0] | {"split": 2}, None, [])]
    out = tmp_path / "out" / "t4.json"
    ended = invoke(write((record(), seen)), "--export", "t4", out)
    assert ended.exit_code == 0, ended.output
    told = json.loads(out.read_text())
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(told, SCHEMA, jsonschema.Draft202012Validator)
    *measured, failed = told["results"]
    assert [one["configuration"] for one in measured] == SIZES
    assert [one["times"]["runtimes"] for one in measured][1] == pytest.approx([9e-3, 1e-3, 90e-3])
    assert {one["invalidity"] for one in measured} == {"correct"}
    values = {one["name"]: (one["value"], one["unit"]) for one in measured[1]["measurements"]}
    assert values["score"] == (9, "")
    assert values["time"] == (pytest.approx(9e-3), "ms")
    assert values["case"] == (record().case_id, "")
    assert (failed["invalidity"], failed["correctness"], failed["times"]["runtimes"]) == ("correctness", 0, [])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"schema_version": "1", "results": []}, SCHEMA, jsonschema.Draft202012Validator)
