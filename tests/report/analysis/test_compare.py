"""Comparisons: on real repeated runs of an H200, and on records whose change is known."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from spmark.impls.core.errors import RecordError
from spmark.records.schema import PROTOCOL_VERSION, Baseline, Flush, Status
from spmark.report.analysis.compare_inputs import read_side, side_of
from spmark.report.analysis.regressions import CaseVerdict, compare
from spmark.report.analysis.run_spread import (
    SpreadModel,
    Trend,
    fit_frame,
    fit_spread,
    read_spread,
    shipped_spread,
    write_spread,
)
from spmark.report.records import load_every_run

AA = Path(__file__).parents[3] / "report" / "reference" / "aa" / "nvidia-h200"
QUIET = SpreadModel(
    device="test-gpu",
    protocol_version=1,
    runs=20,
    cases=50,
    trends={name: Trend(floor=0.003, jitter_us=0.01, df=20) for name in ("time", "speedup")},
)


@pytest.fixture(scope="module")
def repeated():
    frame = load_every_run([AA])
    return frame.assign(driver=[facts.driver for facts in frame["facts"]], run=frame.groupby("case_id").cumcount())


@pytest.fixture(scope="module")
def fitted(repeated):
    return fit_frame(repeated, "aa")


def sides(frame, runs, factor=1.0):
    slower = frame.assign(samples_us=[factor * samples for samples in frame["samples_us"]])
    return [side_of(slower[slower["run"] == run], f"run {run}") for run in runs]


def verdicts(pairs, model):
    """Count (quantity, verdict) over pairs, and the pairs that a gate would stop."""
    found, alarms = Counter(), 0
    for before, after in pairs:
        comparison = compare(before, after, (model, model))
        found.update((change.quantity, change.verdict) for change in comparison.changes)
        alarms += bool(comparison.regressions)
    return found, alarms


def test_the_shipped_model_is_that_of_the_published_runs(fitted):
    assert shipped_spread("nvidia-h200") == fitted
    assert fitted.runs == 20
    assert fitted.cases == 50
    time = fitted.trends["time"]
    assert 0.004 < time.floor < 0.006
    assert 0.04 < time.jitter_us < 0.08


@pytest.mark.full  # 190 pairs of runs; the next test has 45, and a model that has not seen them
def test_of_one_code_at_most_one_case_in_a_hundred_is_flagged(repeated, fitted):
    found, alarms = verdicts(combinations(sides(repeated, range(20)), 2), fitted)
    for quantity in ("time", "speedup", "phase upload"):
        tested = sum(count for (name, _), count in found.items() if name == quantity)
        assert tested > 3000
        assert found[quantity, CaseVerdict.SAME] >= 0.99 * tested
    assert alarms <= 0.05 * 190


@pytest.mark.full
def test_that_holds_for_runs_the_model_has_not_seen(repeated):
    model = fit_frame(repeated[repeated["run"] < 10], "first half")
    found, _ = verdicts(combinations(sides(repeated, range(10, 20)), 2), model)
    assert found["time", CaseVerdict.SAME] >= 0.99 * 45 * 50


@pytest.mark.full
def test_a_tenth_is_found_in_kernels_of_15_us_and_more(repeated, fitted):
    before, after = sides(repeated, range(0, 20, 4)), sides(repeated, range(2, 20, 4), factor=1.1)
    rates = {True: [], False: []}
    for first in before:
        for second in after:
            for change in compare(first, second, (fitted, fitted)).changes:
                if change.quantity == "time":
                    rates[change.before >= 15].append(change.verdict is CaseVerdict.REGRESSED)
    assert np.mean(rates[True]) >= 0.99
    assert np.mean(rates[False]) >= 0.80


def test_a_tenth_in_one_case_is_found_among_fifty(repeated, fitted):
    (before,) = sides(repeated, [3])
    case = "spmm/planetoid/pubmed/J128/float32/gespmm/seed0"
    chosen = repeated["case_id"] == case
    slow = repeated.assign(
        samples_us=[1.1 * s if one else s for s, one in zip(repeated["samples_us"], chosen, strict=True)]
    )
    (after,) = sides(slow, [7])
    assert [change.case_id for change in compare(before, after, (fitted, fitted)).regressions] == [case]


def rows_of(records, run, *, time=1.0, search=1.0, spread=0.0, **changes):
    """Give a sweep's rows as one run of it: as a whole shifted, and with phases that scatter."""
    rng = np.random.default_rng(run)
    return [
        records.changed(
            row,
            samples_us=[time * sample for sample in row.samples_us],
            phases_s={
                name: s * (search if name == "search" else 1.0) * rng.lognormal(0, spread)
                for name, s in row.phases_s.items()
            },
            started_at=row.started_at + timedelta(hours=run),
            **changes,
        )
        for row in records.sweep()
    ]


def side(records, folder, runs=1, first=0, spec=None, **changes):
    rows = [row for run in range(first, first + runs) for row in rows_of(records, run, **changes)]
    return read_side(records.write_records(folder, rows, spec))


def test_a_tenth_of_search_is_found_with_four_runs_a_side(records, tmp_path):
    before = side(records, tmp_path / "a", runs=4, spread=0.02)
    after = side(records, tmp_path / "b", runs=4, first=50, spread=0.02, search=1.1)
    found = {
        (change.quantity, change.verdict) for change in compare(before, after, (QUIET, QUIET)).changes
        if change.quantity.startswith("phase")
    }  # fmt: skip
    assert ("phase search", CaseVerdict.REGRESSED) in found
    assert ("phase search", CaseVerdict.SAME) not in found
    assert ("phase convert", CaseVerdict.REGRESSED) not in found
    assert not any(quantity == "phase compile" for quantity, _ in found)


def test_one_run_of_search_a_side_says_how_many_it_takes(records, tmp_path):
    before, after = side(records, tmp_path / "a"), side(records, tmp_path / "b", search=1.1)
    found = compare(before, after, (QUIET, QUIET))
    searches = [change for change in found.changes if change.quantity == "phase search"]
    assert searches
    assert {change.verdict for change in searches} == {CaseVerdict.SAME}
    assert all(change.threshold > 0.1 and change.runs_needed > 4 for change in searches)
    assert not found.regressions


def test_a_slower_code_is_a_regression_and_its_inverse_an_improvement(records, tmp_path):
    fast, slow = side(records, tmp_path / "a"), side(records, tmp_path / "b", time=1.1)
    there = compare(fast, slow, (QUIET, QUIET))
    assert {c.verdict for c in there.changes if c.quantity == "time"} == {CaseVerdict.REGRESSED}
    assert {c.quantity for c in there.regressions} == {"time"}
    for change in there.changes:
        if change.quantity == "time":
            assert change.ratio.value == pytest.approx(1.1)
            assert change.ratio.low < 1.1 < change.ratio.high
        elif change.quantity == "speedup":
            assert change.ratio.value == pytest.approx(1 / 1.1)
            assert change.verdict is CaseVerdict.REGRESSED
    back = compare(slow, fast, (QUIET, QUIET))
    assert not back.regressions
    assert {c.verdict for c in back.changes if c.quantity == "time"} == {CaseVerdict.IMPROVED}


def test_what_is_sure_but_small_is_not_flagged(records, tmp_path):
    before, after = side(records, tmp_path / "a", runs=9), side(records, tmp_path / "b", runs=9, time=1.015)
    changes = [c for c in compare(before, after, (QUIET, QUIET)).changes if c.quantity == "time"]
    assert all(change.adjusted_p < 0.05 and change.verdict is CaseVerdict.SAME for change in changes)
    assert compare(before, after, (QUIET, QUIET), least=0.01).regressions


def test_a_lost_result_is_a_regression(records, tmp_path):
    rows = rows_of(records, 0)
    lost = rows[0].model_copy(
        update={"status": Status.RUN_ERROR, "reason": "expected an end, found a crash\nmore", "samples_us": []}
    )
    before = read_side(records.write_records(tmp_path / "a", rows))
    after = read_side(records.write_records(tmp_path / "b", [lost, *rows[1:]]))
    (broken,) = compare(before, after, (QUIET, QUIET)).regressions
    assert broken.verdict is CaseVerdict.BROKEN
    assert broken.note == "now run_error: expected an end, found a crash"
    (fixed,) = [c for c in compare(after, before, (QUIET, QUIET)).changes if c.verdict is CaseVerdict.FIXED]
    assert fixed.case_id == rows[0].case_id


def test_another_matrix_is_not_compared_and_cases_of_one_side_are_listed(records, tmp_path):
    rows = rows_of(records, 0)
    other = [rows[0].model_copy(update={"matrix_hash": "cd" * 32}), *rows[2:]]
    before = read_side(records.write_records(tmp_path / "a", rows))
    after = read_side(records.write_records(tmp_path / "b", other))
    found = compare(before, after, (QUIET, QUIET))
    (untested,) = [c for c in found.changes if c.verdict is CaseVerdict.UNTESTED]
    assert "another matrix" in untested.note
    assert found.only_before == (rows[1].case_id,)
    assert found.only_after == ()


def test_speed_ups_over_two_baselines_are_not_averaged(records, tmp_path):
    def beside(name, us):
        return Baseline(implementation=name, config={}, samples_us=[us] * 8)

    baselines = [beside("cusparse_best", 10.0), beside("dgl", 200.0), beside("cusparse_best", 20.0)]
    rows = [
        records.measurement(samples_us=[10.0] * 8, baseline=baseline, started_at=records.START + timedelta(hours=hour))
        for hour, baseline in enumerate(baselines)
    ]
    seen = read_side(records.write_records(tmp_path, rows)).cases["seen"].iloc[0]
    assert np.exp(seen["speedup"].value) == pytest.approx([1.0, 2.0])
    assert np.exp(seen["time"].value) == pytest.approx([10.0] * 3)
    assert len(seen["phase convert"].value) == 3


def test_few_samples_are_not_tested(records, tmp_path):
    rows = [row.model_copy(update={"samples_us": row.samples_us[:3]}) for row in rows_of(records, 0)]
    before, after = (read_side(records.write_records(tmp_path / name, rows)) for name in "ab")
    found = {c.verdict for c in compare(before, after, (QUIET, QUIET)).changes if c.quantity == "time"}
    assert found == {CaseVerdict.UNTESTED}


@pytest.mark.parametrize("what", ["device", "protocol"])
def test_another_device_or_protocol_is_refused_without_across(records, tmp_path, what):
    spec = records.device_spec("other-gpu") if what == "device" else None
    changes = {"device": "other-gpu"} if what == "device" else {"protocol_version": PROTOCOL_VERSION + 1}
    before, after = side(records, tmp_path / "a"), side(records, tmp_path / "b", spec=spec, time=1.2, **changes)
    with pytest.raises(RecordError, match="--across"):
        compare(before, after, (QUIET, QUIET))
    found = compare(before, after, (QUIET, QUIET), across=True)
    assert {change.quantity for change in found.changes} == {"speedup"}
    assert {change.quantity for change in found.regressions} == {"speedup"}


@pytest.mark.parametrize("across", [False, True])
def test_another_flush_is_never_compared(records, tmp_path, across):
    before, after = side(records, tmp_path / "a"), side(records, tmp_path / "b", flush=Flush.READ)
    with pytest.raises(RecordError, match=r"one way to flush .*\n.*/a/.*: write\n.*/b/.*: read\n"):
        compare(before, after, (QUIET, QUIET), across=across)
    again = side(records, tmp_path / "c", flush=Flush.READ)
    assert {change.verdict for change in compare(after, again, (QUIET, QUIET), across=across).changes}


def test_another_driver_is_refused_and_named(repeated):
    (before,) = sides(repeated, [0])
    (after,) = sides(repeated.assign(driver="999.1"), [1])
    with pytest.raises(RecordError, match=r"driver 999\.1"):
        compare(before, after, (QUIET, QUIET))


def test_without_environments_there_is_nothing_to_compare(records, tmp_path):
    folder = records.write_records(tmp_path, rows_of(records, 0))
    (folder / "environments.jsonl").unlink()
    with pytest.raises(RecordError, match=r"environments\.jsonl"):
        read_side(folder)


@pytest.mark.full
def test_a_known_spread_is_recovered(records, tmp_path):
    rng = np.random.default_rng(3)
    rows = []
    for run in range(30):
        for row in records.sweep(widths=(16, 32, 64, 128, 256, 512)):
            if row.samples_us:
                median = np.median(row.samples_us)
                factor = rng.normal(1, np.hypot(0.005, 0.5 / median))
                samples = list(factor * median * rng.lognormal(0, 0.005, 40))
                later = row.started_at + timedelta(hours=run)
                rows.append(row.model_copy(update={"samples_us": samples, "started_at": later}))
    time = fit_spread([records.write_records(tmp_path, rows)]).trends["time"]
    assert time.floor == pytest.approx(0.005, rel=0.3)
    assert time.jitter_us == pytest.approx(0.5, rel=0.2)


def test_two_matrices_of_one_name_are_no_two_runs(records, tmp_path):
    rows = [records.measurement(samples_us=[1.0], matrix_hash=pattern * 64) for pattern in "ab"]
    paths = [records.write_records(tmp_path / row.matrix_hash[:1], [row]) for row in rows]
    with pytest.raises(RecordError, match="found 0"):
        fit_spread(paths)


def test_a_model_is_read_as_it_was_written(fitted, tmp_path):
    write_spread(fitted, tmp_path / "m.json")
    assert read_spread(tmp_path / "m.json") == fitted
    (tmp_path / "m.json").write_text('{"device": "x"}')
    with pytest.raises(RecordError, match="trends"):
        read_spread(tmp_path / "m.json")
