"""The table of impls/tuning/README.md, searches before and after the one search layer, is what the records say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from spmark.impls.core.problem import DType, Op
from spmark.records.rowfile import read_rows
from spmark.records.schema import Measurement, Status
from spmark.report.analysis.statistics import mean_of

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
Key = tuple[str, Op, DType, str]


def measured(side: str) -> dict[Key, Measurement]:
    file = ROOT / "report/reference/one_search/nvidia-h200" / f"{side}.jsonl.gz"
    rows = [row for row in read_rows(file, Measurement) if row.status is Status.OK]
    return {(row.spec.implementation, row.spec.op, row.spec.dtype, row.spec.matrix.id): row for row in rows}


def speedup(row: Measurement) -> float:
    assert row.baseline is not None
    return float(np.median(row.baseline.samples_us) / np.median(row.samples_us))


BEFORE, AFTER = measured("before"), measured("after")


def test_the_same_cases_were_measured() -> None:
    assert len(BEFORE) == 144
    assert BEFORE.keys() == AFTER.keys()


@pytest.mark.parametrize(("name", "op"), sorted({key[:2] for key in BEFORE}))
def test_the_table_says_what_the_records_say(name: str, op: Op) -> None:
    dtypes = [dtype for dtype in (DType.FLOAT32, DType.FLOAT16) if any(key[:3] == (name, op, dtype) for key in BEFORE)]
    ratios, before, now, cases = [""] * 2, [], [], 0
    for place, dtype in enumerate(dtypes):
        keys = [key for key in BEFORE if key[:3] == (name, op, dtype)]
        each = [speedup(AFTER[key]) / speedup(BEFORE[key]) for key in keys]
        ratios[place] = f"{mean_of(each):.3f} ({min(each):.2f}, {max(each):.2f})"
        before.append(f"{sum(sum(BEFORE[key].phases_s.values()) for key in keys):.0f}")
        now.append(f"{sum(sum(AFTER[key].phases_s.values()) for key in keys):.0f}")
        cases = len(keys)
    words = {Op.SPMM: "SpMM", Op.SDDMM: "SDDMM"}[op], f"{cases} {'layers' if name == 'lo_spmm' else 'graphs'}"
    line = " | ".join([f"| `{name}`", *words, *ratios, " + ".join(before), " + ".join(now)]) + " |"
    table = [" ".join(text.split()) for text in (ROOT / "impls/tuning/README.md").read_text().splitlines()]
    assert " ".join(line.split()) in table, line


def test_chosen_plans_of_five_seeds_are_alike_as_the_page_says() -> None:
    lines = (ROOT / "report/reference/one_search/nvidia-h200/seeds.ndjson").read_text().splitlines()
    deviations = []
    for case in map(json.loads, lines):
        times = np.array(case["median_us"])
        assert times.size == 5
        deviations.append(times.std(ddof=1) / times.mean())
    few = sum(deviation < 0.02 for deviation in deviations)
    said = f"under 2 % in {few} of {len(deviations)} cases, and by {100 * max(deviations):.1f} % at most"
    assert said in " ".join((ROOT / "impls/tuning/README.md").read_text().split())
