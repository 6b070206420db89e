"""What an exhaustive search would take, by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from spmark.records.schema import Measurement, SearchFacts
from spmark.report.analysis.cases import derive
from spmark.report.records import current, load_records
from spmark.report.tables.extrapolated import COLUMNS, extrapolated, extrapolated_table


@pytest.fixture
def case(records: ModuleType) -> Callable[..., Measurement]:
    def make(
        mode: str, emitter: str = "cuda", *, label: str = "", run: int = 0, of: int = 0, **phases: float
    ) -> Measurement:
        candidates = SearchFacts(
            candidates=900, compiled=run, measured=run, cores=16, eligible=of, compile_s=3.0 * run, run_s=0.5 * run
        )
        return records.measurement(
            implementation="lo_spmm", label=label or f"{mode}_{emitter}", config={"mode": mode, "emitter": emitter},
            samples_us=[10.0, 11.0, 12.0], search=candidates, phases_s={"upload": 7.0, **phases},
        )  # fmt: skip

    return make


def test_seconds_of_all_candidates(case: Callable[..., Measurement], write: Callable[..., Path]) -> None:
    rows = [
        case("sampled", run=20, of=160, search=75.0, compile=2.0),
        case("exhaustive", run=160, of=160, search=600.0),
        case("lo_spmm_rank", run=10, of=160, search=4.0, compile=1.0),
        case("lo_spmm_rank", "ptx", run=10, of=160, search=0.4, compile=0.1),
        case("near", run=10, of=160, search=9.0),
        # Both searches of another space.
        case("exhaustive", label="exhaustive_paper", run=40, of=40, search=9.0),
        case("paper_rank", run=10, of=40, search=1.0),
    ]
    table = extrapolated_table(derive(current(load_records([write(rows)])), None))
    (found,) = table.frame.to_dict("records")
    assert (found["label"], found["candidates_run"], found["candidates"]) == ("sampled_cuda", 20, 160)
    assert found["seconds_per_candidate"] == 3.5
    # The sample's 70 s become 560; the 5 s of the search beside them and the last compilation stay.
    assert found["extrapolated_s"] == pytest.approx(567.0)
    assert (found["measured_s"], found["rank_s"]) == (600.0, 5.0)
    assert found["extrapolated_over_rank"] == pytest.approx(113.4)
    assert found["measured_over_rank"] == pytest.approx(120.0)
    assert "extrapolated: 113.4 times, 1 cases" in table.note
    assert table.note.startswith("Extrapolated, not measured")


def test_nothing_to_extrapolate(case: Callable[..., Measurement], write: Callable[..., Path]) -> None:
    old = case("sampled", run=20, search=75.0)  # of a plan that does not tell how many there are
    frame = extrapolated(derive(current(load_records([write([old, case("near", run=9, of=99, search=1.0)])])), None))
    assert frame.empty
    assert tuple(frame.columns) == COLUMNS


def test_a_sample_without_rivals(case: Callable[..., Measurement], write: Callable[..., Path]) -> None:
    frame = extrapolated(derive(current(load_records([write([case("sampled", run=2, of=3, search=8.0)])])), None))
    assert frame["extrapolated_s"].tolist() == [pytest.approx(11.5)]
    assert frame[["measured_s", "rank_s", "extrapolated_over_rank"]].isna().all(axis=None)
