"""Facts of studies: reading, what counts twice, and what no study writes."""

from __future__ import annotations

import gzip
import logging
from pathlib import Path

import moved_fakes
import pytest

from spmark.impls.core.errors import RecordError
from spmark.report.records import load_records, record_files
from spmark.report.transfers import load_transfers


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return moved_fakes.write(tmp_path / "study", [moved_fakes.run(), *moved_fakes.results(seeds=(0,), matrices=2)])


def test_facts_become_frames(folder: Path) -> None:
    facts = load_transfers([folder.parent])
    methods = moved_fakes.MODELS | moved_fakes.BASELINES
    assert len(facts.results) == 2 * len(methods)
    assert list(facts.results["op"].unique()) == ["spmm"]
    assert facts.curves.empty and facts.costs.empty
    assert [run.command for run in facts.runs] == ["spmark study transfer dash --source cpu.jsonl"]


def test_an_archive_and_a_named_file_are_read(folder: Path, tmp_path: Path) -> None:
    plain = folder / "transfers.jsonl"
    packed = tmp_path / "packed" / "transfers.jsonl.gz"
    packed.parent.mkdir()
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert load_transfers([packed.parent]).results.equals(load_transfers([plain]).results)


def test_the_later_result_counts(folder: Path) -> None:
    moved_fakes.write(
        folder, [moved_fakes.run(), *moved_fakes.results({"dash": (1.0, 8, 5)}, seeds=(0,), matrices=2, noise=0)]
    )
    facts = load_transfers([folder])
    dash = facts.results[facts.results["method"] == "dash"]
    assert len(dash) == 2
    assert dash["top1_us"].tolist() == pytest.approx(dash["optimum_us"].tolist())
    assert len(facts.runs) == 1


def test_facts_are_no_records(folder: Path) -> None:
    assert record_files([folder, folder / "transfers.jsonl"]) == []
    assert load_records([folder]).empty


def test_impossible_times_and_torn_lines_are_passed_over(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = len(load_transfers([folder]).results)
    (result,) = moved_fakes.results({"dash": (0.5, 9, 9)}, seeds=(0,), matrices=1)
    moved_fakes.write(folder, [result.model_copy(update={"top1_us": 1e300})])
    with (folder / "transfers.jsonl").open("a") as file:
        file.write('{"kind": "result", "method": "da')
    with caplog.at_level(logging.WARNING):
        assert len(load_transfers([folder]).results) == before
    assert "a result of dash on seeded/m0: impossible times" in caplog.text
    assert "cut off" in caplog.text


@pytest.mark.parametrize("line", ['{"kind": "rumour"}', '{"kind": "run", "surprise": 1}', "[]"])
def test_a_line_that_is_no_fact_is_refused(folder: Path, line: str) -> None:
    with (folder / "transfers.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(RecordError, match=r"transfers\.jsonl:46: expected a Fact"):
        load_transfers([folder])
