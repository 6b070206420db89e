"""Write README's table of results anew from the records that are published for an H200.

    python scripts/results_table.py

A mean is geometric, over the cases that the system solved; twins, which stand in for matrices that are not here, are
left out. `tests/test_readme.py` holds the table against the records.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from spmark.impls.core.baseline import BASELINES
from spmark.impls.core.record import MatrixKind
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
    ("SparseTIR", "sparsetir", "spmm", "float32", "sparsetir_fig13_spmm", "judging_graphs"),
    ("SparseTIR", "sparsetir", "spmm", "float16", "sparsetir_fig13_spmm", "judging_graphs"),
    ("SparseTIR", "sparsetir", "sddmm", "float32", "sparsetir_fig14_sddmm", "judging_graphs"),
    ("SparseTIR", "sparsetir", "sddmm", "float16", "sparsetir_fig14_sddmm", "judging_graphs"),
    ("STile", "stile", "spmm", "float16", "stile_fig7_spmm", "judging_graphs"),
    ("STile", "stile", "sddmm", "float16", "stile_fig9_sddmm", "judging_graphs"),
    ("LiteForm", "liteform", "spmm", "float32", "liteform_fig6_speedup", "judging_graphs"),
    ("LO-SpMM", "lo_spmm", "spmm", "float32", "lo_spmm_fig10_speedup", "judging_layers"),
)
"""System, label, operator, dtype, sweep of a figure of the paper, sweep of matrices to which nothing was fitted."""


def rewritten(readme: str) -> str:
    """Give the README with the table as the records have it."""
    before, rest = readme.split(_BEGIN)
    return before + _BEGIN + table() + _END + rest.split(_END)[1]


def table() -> str:
    """Give the table in Markdown."""
    return _HEAD + "".join(f"| {' | '.join(cells)} |\n" for cells in _rows())


def _rows() -> Iterator[tuple[str, ...]]:
    for system, label, op, dtype, paper, unseen in _ROWS:
        key = (op, dtype, label)
        published, judged = (_means(sweep).loc[key] for sweep in (paper, unseen))
        ahead = over_best_other(_derived(unseen)).set_index(["op", "dtype", "label"]).sort_index().loc[key]
        yield (
            system,
            {"spmm": "SpMM", "sddmm": "SDDMM"}[op],
            dtype,
            _shown(published),
            _shown(judged),
            f"{mean_of(ahead['over_best']):.2f}",
            _seconds(float(spent_s(ahead["phases_s"]).median())),
            f"{_counted(published)}; {_counted(judged)}",
        )


@cache
def _derived(sweep: str) -> pd.DataFrame:
    derived = derive(current(load_records([_RECORDS / sweep])), BASELINES["cuda"])
    return derived[derived["matrix_kind"] != MatrixKind.TWIN.value]


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
