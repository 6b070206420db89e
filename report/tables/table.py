"""A table of a report: a frame at full precision, with a note for the reader and the page that the table stands on."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, partial
from itertools import repeat
from math import isinf, isnan
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from spmark.records.schema import SPARSE_PACKAGE, Status
from spmark.report.analysis.cases import WIDE_MARK, WIDE_SPEEDUP, choose_baseline, derive
from spmark.report.analysis.means import MOSTLY, mean_speedups
from spmark.report.records import current

MOST_ROWS = 40
"""Rows up to which a table of LaTeX stands on one page."""
TWIN = "A twin is a seeded stand-in for the matrix that it is named after."
_BEST = "_best"
"""How implementations are named that race a library's algorithms and keep the fastest."""
_FORMULA = re.compile(r"[=@\t\r\n]|[+-](?!(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\Z)", re.IGNORECASE)
"""Text that a spreadsheet would run."""


class Chapter(StrEnum):
    """The page of a site that a table stands on."""

    SUMMARY = "index"
    SCORECARD = "scorecard"
    CASES = "cases"
    FAILURES = "failures"


@dataclass(frozen=True)
class Table:
    """A frame with a title and a note for its reader."""

    name: str
    """Stem of its CSV file."""
    title: str
    note: str
    frame: pd.DataFrame
    """Columns ``x_low`` and ``x_high`` are the ends of ``x``'s interval."""
    chapter: Chapter = Chapter.SUMMARY
    headline: bool = False
    """Whether the table stands on the summary, too."""
    heads: Mapping[str, str] = field(default_factory=dict)
    """Headings of columns whose heading depends on what was measured; all others have the usual one."""

    def heading(self, column: str) -> str:
        """Give the heading of a column."""
        return self.heads.get(column, heading(column))

    @property
    def on_paper(self) -> bool:
        """Whether the table is a summary that fits on a page of paper, and so is written as LaTeX, too."""
        return self.chapter is Chapter.SUMMARY and len(self.frame) <= MOST_ROWS

    def latex(self) -> str:
        """Write the table as LaTeX for the package ``booktabs``; of a reason the first line."""
        columns, rows = shown(self.frame)
        texts = [[first_line(cell.text) for cell in row] for row in rows]
        frame = pd.DataFrame(texts, columns=list(map(self.heading, columns)))
        label = f"tab:{self.name}"
        return frame.to_latex(index=False, escape=True, caption=self.title, label=label)


def csv_of(frame: pd.DataFrame) -> str:
    """Give a frame as CSV without its index; text that a spreadsheet would run as a formula begins with an apostrophe.

    Names in a report come out of records, which others may have made.
    """
    shown = frame.rename(columns=_as_text)
    for name in shown.select_dtypes(["object", "str"]):
        # As objects: pandas would turn whole numbers beside a missing one into fractions.
        shown[name] = pd.Series([_as_text(value) for value in shown[name].tolist()], shown.index, dtype=object)
    return str(shown.to_csv(index=False, lineterminator="\n"))


def _as_text(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    # A carriage return alone ends a row for some readers, and is not put in quotes.
    return ("'" if _FORMULA.match(value) else "") + value.replace("\r\n", "\n").replace("\r", "\n")


def first_line(text: str) -> str:
    """Give the first line of a reason, which may carry a whole log."""
    return text.strip().split("\n", 1)[0]


def explained(baseline: str) -> str:
    """Give the name of a baseline, and what it is where the name alone does not say so."""
    library = baseline.removesuffix(_BEST)
    return baseline if library == baseline else f"{baseline} (the fastest of {library}'s algorithms in the same run)"


def config_text(config: Mapping[str, Any]) -> str:
    """Give the entries of a config as one text."""
    return ", ".join(f"{key}={value}" for key, value in config.items())


HEADINGS = {
    "width": "J", "median_us": "median (µs)", "warm_us": "warm (µs)", "graph_us": "graph (µs)",
    "baseline_us": "baseline (µs)", "speedup": "speed-up", "speedup_from": "baseline from",
    "gflops_per_s": "GFLOP/s", "bytes_share": "of bytes floor", "flops_share": "of FLOP floor",
    "label": "implementation",
    "common_speedup": "speed-up, common cases", "common_cases": "common cases", "left_out": "left out",
    "own_speedup": "speed-up, own cases", "own_cases": "own cases", "kinds": "matrices",
    "num_rows": "I", "num_cols": "K", "nnz": "non-zeros", "mean_row": "mean row", "longest_row": "longest row",
    "max_rel_error": "error", "build_s": "build (s)", "choosing_s": "choosing (s)",
    "break_even_runs": "break-even (runs)", "break_even_runs_with_compile": "break-even with compile (runs)",
    "time_us": "time (µs)",
    "matrix_kind": "kind", "matrix_hash": "pattern",
    "over_best_speedup": "over the best other", "most_often": "which is most often",
    "met_cases": "cases with another system", "fastest_share": "faster than every other implementation",
    "over_next_speedup": "over the best other choice", "paid_off_share": "pay off",
    "time_ratio": "time over it", "search_ratio": "search time over it", "rmse_us": "RMSE (µs)",
    "pearson_score": "Pearson", "log_pearson_score": "Pearson of logarithms", "spearman_score": "Spearman",
    "bias_ratio": "predicted over measured", "top1_speedup": "first choice", "top5_speedup": "best of five",
    "optimum_speedup": "optimum", "top1_share": "first choice of optimum", "top5_share": "best of five of optimum",
    "ape_share": "APE", "opa_score": "OPA", "opa_ceiling_score": "OPA, ceiling", "tau_score": "tau",
    "tau_ceiling_score": "tau, ceiling", "data_cost_score": "cost of data (millions)",
    "ahead_speedup": "baseline's time over it",
}  # fmt: skip
_UNITS = {"s": "s", "us": "µs"}
_NUMBERS = (int, float, np.number)


def heading(column: str) -> str:
    """Give the heading of a column."""
    stem, _, unit = column.rpartition("_")
    other = f"{stem} ({_UNITS[unit]})" if unit in _UNITS else column.replace("_", " ")
    return HEADINGS.get(column, other)


class Cell(NamedTuple):
    """A cell of a table."""

    text: str
    number: float | None
    """Number that the cell is sorted by; None for text."""


def shown(frame: pd.DataFrame) -> tuple[list[str], list[list[Cell]]]:
    """Give the columns that a table shows, and its cells row by row: ends of intervals are part of their column."""
    ends = {f"{name}_{end}" for name in frame for end in ("low", "high")}
    columns = [str(name) for name in frame if name not in ends]
    cells = []
    for column in columns:
        of_ends = (f"{column}_{end}" for end in ("low", "high"))
        low, high = (frame[end].tolist() if end in frame else repeat(None) for end in of_ends)
        cells.append(list(map(partial(_cell, column), frame[column].tolist(), low, high)))
    return columns, [list(row) for row in zip(*cells, strict=True)]


def _cell(column: str, value: Any, low: Any, high: Any) -> Cell:
    if not isinstance(value, _NUMBERS) or isinstance(value, bool):
        return Cell("" if value is None else str(value), None)
    return Cell(cell(column, float(value), low, high), None if isnan(value) else float(value))


def cell(column: str, value: float, low: float | None = None, high: float | None = None) -> str:
    """Give the text of a number, with its interval where both ends are known; empty for NaN."""
    if isnan(value):
        return ""
    text = number(column, value)
    if low is None or high is None or isnan(low) or isnan(high):
        return text
    return f"{text} [{number(column, low)}, {number(column, high)}]"


def number(column: str, value: float) -> str:
    """Give a number in the unit that its column's name says."""
    if isinf(value):
        return "never"
    return _form(column)(value)


@cache
def _form(column: str) -> Callable[[float], str]:
    return next((form for ending, form in _FORMS if column.endswith(ending)), "{:,.0f}".format)


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


def _seconds(value: float) -> str:
    """Give seconds with four digits, without an exponent."""
    return _digits(value) if abs(value) >= 1e-3 else np.format_float_positional(value, 4, fractional=False, trim="-")


_FORMS: tuple[tuple[str | tuple[str, ...], Callable[[float], str]], ...] = (
    (("speedup", "_ratio"), lambda value: f"{value:#.3g}×" if value < 99.95 else f"{value:,.0f}×"),
    (("_share", "padding"), lambda value: f"{value:.1%}"),
    ("_score", lambda value: f"{value:.3f}"),
    ("_bytes", lambda value: f"{value / 1e6:,.1f} MB"),
    ("max_rel_error", lambda value: f"{value:.1e}"),
    ("gflops_per_s", lambda value: f"{value:,.1f}"),
    ("_s", _seconds),
    (("_us", "mean_row"), _digits),
)
"""How columns with these endings are written; the first ending that fits counts."""


WIDE_LEGEND = (
    f"{WIDE_MARK} at least half of the cases have a 95 % interval that reaches more than {WIDE_SPEEDUP:.0%} from their "
    "speed-up to either side: measure again on a machine that does nothing else"
)


def short_table(frame: pd.DataFrame, baseline: str | None = None) -> list[dict[str, Any]]:
    """Sum up loaded records in one row per device, op, dtype and label.

    Parameters
    ----------
    frame : DataFrame
        As `spmark.report.records.load_records` gives it.
    baseline : str, optional
        Chosen as `spmark.report.analysis.cases.choose_baseline` does.

    Returns
    -------
    list of dict
        ``device``, ``op``, ``dtype``, ``implementation`` (the label), ``speedup`` (text with its interval, over the
        label's own cases, `WIDE_MARK` where `WIDE_LEGEND` holds, and the kinds of matrices where it mixes them; empty
        without one, ``baseline`` for the baseline itself), ``ok`` and ``failed`` (numbers of cases), ``left_out``
        (text: what the mean does not cover).
    """
    keys, rows = ["op", "dtype", "label"], []
    for device, part in current(frame).groupby("device", sort=False):
        derived = derive(part.reset_index(drop=True), choose_baseline(part, baseline))
        means: Any = mean_speedups(derived).set_index(keys)
        for key, cases in derived.groupby(keys):
            ok = int((cases["status"] == Status.OK.value).sum())
            row = {"device": device} | dict(zip(("op", "dtype", "implementation"), key, strict=True))
            row |= {"speedup": "baseline", "ok": ok, "failed": len(cases) - ok, "left_out": ""}
            if key in means.index:
                mean = means.loc[key]
                row["speedup"] = _qualified(mean)
                row["left_out"] = "" if isnan(mean["speedup"]) else mean["left_out"]
            rows.append(row)
    return rows


def of_libraries(frame: pd.DataFrame) -> str:
    """Say which versions of the sparse library loaded records are of; empty for one version."""
    counts = frame.loc[frame["library"] != "", "library"].value_counts().sort_index()
    if len(counts) < 2:
        return ""
    each = " and ".join(f"{version} ({count:,})" for version, count in counts.items())
    return (
        f"Records are of {SPARSE_PACKAGE} {each}: of a problem that several versions have, those of the version count "
        "whose baseline was faster."
    )


def _qualified(mean: pd.Series[Any]) -> str:
    speedup = cell("speedup", mean["speedup"], mean["speedup_low"], mean["speedup_high"])
    if speedup and mean["wide_share"] >= MOSTLY:
        speedup += f" {WIDE_MARK}"
    return f"{speedup} ({mean['kinds']})" if speedup and mean["kinds"].startswith("mixed") else speedup
