from __future__ import annotations

from collections import Counter
from pathlib import Path

from spmark.records.rowfile import read_rows
from spmark.records.schema import CandidateRow, EnvironmentRow, Measurement, Status


def records(folder: Path) -> list[Measurement]:
    return list(read_rows(folder / "records.jsonl", Measurement))


def test_every_case_has_one_record_and_the_next_run_goes_on(run, fakes, tmp_path):
    behaviours = ["ok", "segfault", "build_error", "memory", "sticky", "exit", "ok"]
    cases = [fakes.case(f"m{at}", do) for at, do in enumerate(behaviours)]
    summary = run(cases)
    rows = records(tmp_path / "r")
    assert Counter(row.case_id for row in rows) == Counter(case.case_id for case in cases)
    assert summary.statuses == {Status.OK: 2, Status.RUN_ERROR: 4, Status.OUT_OF_MEMORY: 1}
    assert (summary.left, summary.skipped, summary.interrupted) == (0, 0, False)
    assert len(list(read_rows(tmp_path / "r" / "candidates.jsonl", CandidateRow))) == 2
    assert [row.digest for row in read_rows(tmp_path / "r" / "environments.jsonl", EnvironmentRow)] == [
        rows[0].environment
    ]
    again = run(cases)
    assert (len(again.rows), again.skipped) == (5, 2)
    assert len(run(cases).rows) == 0
