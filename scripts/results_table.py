"""Write README's table of results anew from the records that are published for an H200.

    python scripts/results_table.py

A mean is geometric, over the cases that the system solved; twins, which stand in for matrices that are not here, are
left out. A system has a row as published, one for our extension, and one for records of older code under its bare name,
each where there are such records; the row of older code says how often that code chose the kernel of `direct` in the
figure's sweep. `direct` and `auto` are in no paper. `tests/test_readme.py` holds the table against the records.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from spmark.impls.core.baseline import BASELINES
from spmark.records.schema import MatrixKind
from spmark.report.analysis.cases import derive, spent_s
from spmark.report.analysis.means import mean_speedups
from spmark.report.analysis.statistics import mean_of
from spmark.report.records import current, load_records
from spmark.report.tables.winners import over_best_other

ROOT = Path(__file__).parents[1]
_README = ROOT / "README.md"
_RECORDS = ROOT / "report/reference/h200"
_BEGIN, _END = "<!-- scripts/results_table.py writes this table -->\n\n", "<!-- end of the table -->\n"
_HEAD = (
    "| system | product | number type | figure's sweep | unseen matrices | over best other "
    "| build without upload | problems |\n"
    "|---|---|---|---|---|---|---|---|\n"
)
_ROWS = (
    ("SparseTIR", "sparsetir", "sparsetir_paper", "spmm", "float32", "sparsetir_fig13_spmm", "judging_graphs"),
    ("SparseTIR", "sparsetir", "sparsetir_paper", "spmm", "float16", "sparsetir_fig13_spmm", "judging_graphs"),
    ("SparseTIR", "sparsetir", "sparsetir_paper", "sddmm", "float32", "sparsetir_fig14_sddmm", "judging_graphs"),
    ("SparseTIR", "sparsetir", "sparsetir_paper", "sddmm", "float16", "sparsetir_fig14_sddmm", "judging_graphs"),
    ("STile", "stile", "stile_paper", "spmm", "float16", "stile_fig7_spmm", "judging_graphs"),
    ("STile", "stile", "stile_paper", "sddmm", "float16", "stile_fig9_sddmm", "judging_graphs"),
    ("LiteForm", "liteform", "liteform_published", "spmm", "float32", "liteform_fig6_speedup", "judging_graphs"),
    ("LO-SpMM", "lo_spmm", "lo_spmm_paper", "spmm", "float32", "lo_spmm_fig10_speedup", "judging_layers"),
)
"""System, implementation, published label, operator, dtype, sweep of a figure of the paper, sweep of matrices to which
nothing was fitted."""
_OURS = {
    "direct": "`direct`, by rule",
    "auto_rule": "`auto`, by rule",
    "auto_learned": "`auto`, learned",
    "auto": "`auto`, raced",
}
_NONE = "not run"


def rewritten(readme: str) -> str:
    """Give the README with the table as the records have it."""
    before, rest = readme.split(_BEGIN)
    return before + _BEGIN + table() + _END + rest.split(_END)[1]


def table() -> str:
    """Give the table in Markdown."""
    return _HEAD + "".join(f"| {' | '.join(cells)} |\n" for cells in _rows())


def _rows() -> Iterator[tuple[str, ...]]:
    for system, name, published, *row in _ROWS:
        for label, what in {published: "as published", f"{name}_extended": "extended", name: "older code"}.items():
            if cells := _cells(label, *row):
                yield f"{system}, {what}{_with_direct(label, *row) if label == name else ''}", *cells
    for label, what in _OURS.items():
        for op, dtype in (("spmm", "float32"), ("spmm", "float16"), ("sddmm", "float32")):
            if cells := _cells(label, op, dtype, "", "judging_graphs"):
                yield what, *cells


def _cells(label: str, op: str, dtype: str, paper: str, unseen: str) -> tuple[str, ...]:
    """Give the cells of a label after its name; none where neither sweep has records of it."""
    key = (op, dtype, label)
    found = [_mean(sweep, key) for sweep in (paper, unseen)]
    if all(mean is None for mean in found):
        return ()
    ahead, build = _NONE, _NONE
    if found[1] is not None:
        derived = over_best_other(_derived(unseen)).set_index(["op", "dtype", "label"]).sort_index().loc[key]
        ahead = f"{mean_of(derived['over_best']):.2f}"
        build = _seconds(float(spent_s(derived["phases_s"]).median()))
    shown = [_NONE if mean is None else _shown(mean) for mean in found]
    counted = "; ".join("0" if mean is None else _counted(mean) for mean in found)
    return {"spmm": "SpMM", "sddmm": "SDDMM"}[op], dtype, *shown, ahead, build, counted


def _with_direct(label: str, op: str, dtype: str, paper: str, unseen: str) -> str:
    """Say in how many cases of the figure's sweep older code of a system chose the kernel of ``direct``."""
    derived = _derived(paper)
    own = derived[(derived["label"] == label) & (derived["op"] == op) & (derived["dtype"] == dtype)]
    ran = int(own["config"].map(lambda config: config.get("format") == "direct").sum())
    return f" (`direct` in {ran} of {len(own)})" if ran else ""


@cache
def _derived(sweep: str) -> pd.DataFrame:
    derived = derive(current(load_records([_RECORDS / sweep])), BASELINES["cuda"])
    return derived[derived["matrix_kind"] != MatrixKind.TWIN.value]


def _mean(sweep: str, key: tuple[str, str, str]) -> pd.Series[Any] | None:
    if not sweep or key not in _means(sweep).index:
        return None
    mean = _means(sweep).loc[key]
    return mean if mean["cases"] else None


@cache
def _means(sweep: str) -> pd.DataFrame:
    return mean_speedups(_derived(sweep)).set_index(["op", "dtype", "label"])


def _shown(mean: pd.Series[Any]) -> str:
    return f"{mean['speedup']:.2f} [{mean['speedup_low']:.2f}, {mean['speedup_high']:.2f}]"


def _counted(mean: pd.Series[Any]) -> str:
    return str(mean["cases"]) if mean["cases"] == mean["problems"] else f"{mean['cases']} of {mean['problems']}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1e3:.0f} ms"


if __name__ == "__main__":
    _README.write_text(rewritten(_README.read_text()))
