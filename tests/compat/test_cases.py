"""Cases are known by what they were called when they were recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from compat_facts import case_ids, read

from spmark.impls.core import renamed_cases
from spmark.impls.core.record import CandidateRow, Measurement, Status
from spmark.report.analysis.run_spread import Trend
from spmark.suite.plan.resume import History, Key

pytestmark = pytest.mark.full

FROZEN: dict[str, list[str]] = read("case_ids.json.gz")
TODAY = case_ids()
OLD, NEW = "spmm/planetoid/cora/J32/float32/scipy_cpu/seed0", "spmm/planetoid/cora/J32/float32/of_tomorrow/seed0"


@pytest.mark.parametrize("sweep", FROZEN)
def test_every_case_of_a_sweep_is_still_known(sweep: str) -> None:
    lost = {renamed_cases.current_id(case_id) for case_id in FROZEN[sweep]} - set(TODAY.get(sweep, ()))
    assert not lost, (
        f"{len(lost)} cases of {sweep} have other ids, such as {min(lost)}: their records would be orphans; "
        "give each old id its new one in impls/renamed_cases.json"
    )
    assert len(FROZEN[sweep]) > 5


def test_every_sweep_is_frozen() -> None:
    assert set(FROZEN) <= set(TODAY)
    assert sum(map(len, FROZEN.values())) == 10955


def test_an_alias_leads_to_a_case_of_today() -> None:
    every = {case_id for ids in TODAY.values() for case_id in ids}
    assert not set(renamed_cases.renamed()) & every, "an id that is renamed is one that no sweep has any more"
    assert set(renamed_cases.renamed().values()) <= every


@pytest.fixture
def renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "renamed.json"
    path.write_text(json.dumps({OLD: NEW}))
    monkeypatch.setattr(renamed_cases, "RENAMED", path)
    renamed_cases.renamed.cache_clear()
    yield
    renamed_cases.renamed.cache_clear()


def test_records_candidates_and_spreads_are_read_by_todays_id(renamed: None, tmp_path: Path) -> None:
    record = Measurement(
        case_id=NEW, implementation_version="0" * 16, op="spmm", matrix="cora", source="planetoid", seed=0, width=32,
        dtype="float32", device="cpu", device_kind="cpu", implementation="of_tomorrow", label="of_tomorrow",
        status=Status.UNSUPPORTED, reason="none",
    )  # fmt: skip
    old = record.model_dump_json().replace(NEW, OLD)
    assert Measurement.model_validate_json(old) == record
    row = CandidateRow(case_id=OLD, implementation_version="0", environment="1", config={})
    assert row.case_id == NEW
    assert Trend(floor=0.1, jitter_us=1, df=5, known={OLD: (1.0, 3)}).known == {NEW: (1.0, 3)}


def test_a_resumed_sweep_finds_what_was_recorded_under_the_old_id(renamed: None, suite_folder: Path) -> None:
    assert [key.case_id for key in History.read(suite_folder).tried] == [NEW]
    assert isinstance(next(iter(History.read(suite_folder).tried)), Key)


@pytest.fixture
def suite_folder(tmp_path: Path) -> Path:
    environment = {
        "device": {
            "name": "cpu", "kind": "cpu", "arch": "x86_64", "num_sms": 1, "l2_bytes": 1, "memory_bytes": 1,
            "copy_bytes_per_s": 0, "read_bytes_per_s": 0, "fma_flops_per_s": 0,
        },
        "packages": {}, "cpu": "", "cores": 1, "memory_bytes": 1, "system": "",
    }  # fmt: skip
    record = {
        "case_id": OLD, "implementation_version": "0", "op": "spmm", "matrix": "cora", "source": "planetoid", "seed": 0,
        "width": 32, "dtype": "float32", "device": "cpu", "device_kind": "cpu", "implementation": "scipy_cpu",
        "label": "scipy_cpu", "status": "unsupported", "reason": "none", "environment": "a",
    }  # fmt: skip
    (tmp_path / "environments.jsonl").write_text(json.dumps({"digest": "a", "environment": environment}) + "\n")
    (tmp_path / "records.jsonl").write_text(json.dumps(record) + "\n")
    return tmp_path
