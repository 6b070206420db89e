"""Derived columns from the cache are those of a new derivation; digests tell frames apart."""

from __future__ import annotations

import pandas as pd
import pytest

from spmark.report.analysis import kept
from spmark.report.analysis.cases import derive
from spmark.report.records import current, load_records
from spmark.report.texts import python_texts


@pytest.fixture
def frame(records, write, monkeypatch, tmp_path):
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path / "cache"))
    with python_texts():
        yield current(load_records([write(records.sweep())]))


@pytest.fixture
def derivations(monkeypatch):
    """Give the baselines of all derivations that were not read."""
    made = []

    def counted(frame, baseline):
        made.append(baseline)
        return derive(frame, baseline)

    monkeypatch.setattr(kept, "derive", counted)
    return made


@pytest.mark.parametrize("baseline", ["cusparse_best", None])
def test_the_second_time_is_read_and_equal(frame, derivations, baseline):
    expected = derive(frame, baseline)
    for _ in range(2):
        found = kept.derived(frame, baseline)
        pd.testing.assert_frame_equal(frame.assign(**found.columns), expected)
        assert found.digest == kept.digest_of(frame)
    assert derivations == [baseline]


@pytest.mark.parametrize("content", [b"", b"no archive"])
def test_a_damaged_entry_is_derived_anew(frame, derivations, monkeypatch, content):
    kept.derived(frame, None)
    monkeypatch.setattr(kept, "read_sealed", lambda path: content)
    pd.testing.assert_frame_equal(frame.assign(**kept.derived(frame, None).columns), derive(frame, None))
    assert derivations == [None, None]


def test_a_digest_changes_with_every_value(frame):
    digests = {kept.digest_of(frame), kept.digest_of(frame.iloc[::-1])}
    for name in ("samples_us", "phases_s", "label", "nnz", "started_at", "config"):
        changed = frame.copy()
        values = changed[name].tolist()
        values[0] = values[0] * 2 if name in ("samples_us", "nnz") else values[-1] if name == "started_at" else {"x": 1}
        changed[name] = ["other", *values[1:]] if name == "label" else values
        digests.add(kept.digest_of(changed))
    assert len(digests) == 2 + 6
    assert kept.digest_of(frame.copy()) in digests
