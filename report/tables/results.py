"""The tables of one device's report: frames at full precision, which the page rounds and the CSV files do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import exp, log
from typing import Any

import numpy as np
import pandas as pd

from spmark.impls.core.interfaces import CHOOSING_PHASES, PHASES
from spmark.records.schema import SPARSE_PACKAGE, Status
from spmark.report.analysis.means import by_group, mean_speedups, mean_speedups_by_kind
from spmark.report.analysis.statistics import geometric_mean
from spmark.report.tables.table import TWIN, Chapter, Table, config_text, first_line

_MEAN_NOTE = (
    "Geometric means of speed-ups over {baseline}, with a 95 % interval over {unit}. Compare implementations by the "
    "mean over common cases, which all solved that solved more than half of what any solved. ‘Left out’ are the "
    "problems that the mean over own cases does not cover, by reason."
)
_KIND_NOTE = f" A row says so where it mixes kinds of matrices. {TWIN}"
_MEANS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("overall", "Speed-up over everything", ()),
    ("speedup-per-matrix", "Speed-up per matrix", ("matrix",)),
    ("speedup-per-width", "Speed-up per J", ("width",)),
)
_MEDIAN = ["median_us", "median_us_low", "median_us_high", "samples"]
_CASE_COLUMNS = [
    "status", *_MEDIAN, "speedup", "speedup_low", "speedup_high", "speedup_from", "gflops_per_s", "bytes_share",
    "flops_share", "sparse_share", "warm_us", "graph_us", "padding", "device_bytes", "max_rel_error", "config", "flags",
]  # fmt: skip
_PAID = ["break_even_runs", "break_even_runs_with_compile"]
_IDENTITY = ("matrix", "op", "dtype", "width", "seed", "label")
"""What tells cases apart. The matrix stands first, since the first column stays in view of a wide table."""


def mean_tables(derived: pd.DataFrame, baseline: str) -> list[Table]:
    """Give the geometric means over everything, over the widths of each matrix, and over the matrices at each width."""
    made = []
    own = {name: f"own_{name}" for name in ("speedup", "speedup_low", "speedup_high", "cases")}
    for name, title, by in _MEANS:
        of_matrix = "matrix" in by
        means = mean_speedups(derived, by) if of_matrix else mean_speedups_by_kind(derived, by)
        note = _MEAN_NOTE.format(baseline=baseline, unit="widths" if of_matrix else "matrices")
        note += "" if of_matrix else _KIND_NOTE
        known = means[means["cases"] > 0]
        unknown = sorted(set(means["label"]) - set(known["label"]))
        note += f" Without any speed-up, so without a row: {', '.join(unknown)}." if unknown else ""
        shown = known.drop(columns=["implementation", "wide_share", "problems"]).rename(columns=own)
        made.append(Table(name, title, note, shown))
    return made


def library_table(cases: pd.DataFrame, of_each: Mapping[str, pd.DataFrame], baseline: str) -> Table:
    """Give the means over the faster version of the sparse library, case by case, and over each version beside it."""
    parts = {"the faster of each case": cases, **of_each}
    means = pd.concat([mean_speedups(part).assign(library=name) for name, part in parts.items()])
    columns = ["op", "dtype", "label", "library", "speedup", "speedup_low", "speedup_high", "cases"]
    shown = means.loc[means["cases"] > 0, columns].sort_values(columns[:3], kind="stable")
    note = (
        f"Geometric means of speed-ups over {baseline} by the version of {SPARSE_PACKAGE} that it ran on, each over "
        "the cases that it has. Everything else here is over the faster version of each case."
    )
    return Table("libraries", "Speed-up by version of the sparse library", note, shown, heads={"library": "version"})


def case_table(derived: pd.DataFrame) -> Table:
    """Give every case: its median, its speed-up and where the baseline's time is from, its shares of floors."""
    note = (
        "Medians with a distribution-free 95 % interval, speed-ups with a bootstrap interval. ‘Baseline from’ says "
        "whether the baseline was measured in turn with the case or taken from its own record. Shares are the least "
        "time for the compulsory bytes, and for the useful flops, over the median."
    )
    shown = _listed(derived, derived, _CASE_COLUMNS)
    shown = _filled(shown.assign(config=shown["config"].map(config_text)))
    return Table("cases", "Every case, by matrix and J", note, shown, Chapter.CASES)


def times_table(derived: pd.DataFrame) -> Table:
    """Give the median time of every case, with a column for each label: absolute times side by side."""
    rows = derived[derived["median_us"].notna()]
    problem = [name for name in _identity(derived) if name != "label"]
    wide = rows.pivot_table("median_us", problem, "label", aggfunc="last", sort=False) if len(rows) else pd.DataFrame()
    shown = wide.add_suffix("_us").reset_index().sort_values(problem, kind="stable") if len(wide) else wide
    note = (
        "Median time of a run in µs from a cold cache, of networks that of a step, before which none is emptied. Empty "
        "where a case has no time. A speed-up is no ratio of two of these columns: the baseline was measured again "
        "in turn with each case."
    )
    return Table("times", "Absolute times", note, shown.rename_axis(columns=None))


def part_table(derived: pd.DataFrame) -> Table:
    """Give the time of each sparse layer of networks, with a column for each label."""
    rows = derived[derived["sparse_us"].notna()]
    parts = rows.assign(part=rows["parts_us"].map(list), part_us=rows["parts_us"].map(lambda of: list(of.values())))
    parts = parts.explode(["part", "part_us"]).astype({"part_us": float})
    problem = [*(name for name in _identity(derived) if name != "label"), "part"]
    wide = parts.pivot_table("part_us", problem, "label", aggfunc="last", sort=False) if len(rows) else pd.DataFrame()
    shown = wide.add_suffix("_us").reset_index() if len(wide) else wide
    note = (
        "Median time of each sparse layer on its own, in µs, with its gradients where a step takes them; warm caches."
    )
    return Table("parts", "Time by layer", note, shown.rename_axis(columns=None), Chapter.CASES)


def build_table(derived: pd.DataFrame, baseline: str | None) -> Table:
    """Give what building cost by phase, and how many runs pay it off against the baseline."""
    note = (
        f"Seconds by phase. Break-even is the number of runs against {baseline or 'a baseline (none here)'} after "
        f"which choosing ({', '.join(CHOOSING_PHASES)}) has paid off, without and with compiling; ‘never’ where a run "
        "is slower. A baseline without a record of its own counts as built for free."
    )
    built = _ordered(derived[derived["phases_s"].map(len) > 0])
    phases = pd.DataFrame(list(built["phases_s"]), built.index, [*PHASES], float).add_suffix("_s")
    searches = {
        f"search_{field}": built["search"].map(lambda facts, field=field: getattr(facts, field, None))
        for field in ("candidates", "compiled", "measured")
    }
    frame = built[_identity(derived)].join(phases).assign(build_s=built["build_s"], **searches).join(built[_PAID])
    return Table("build", "What building cost", note, _filled(frame), Chapter.CASES)


def break_even_table(derived: pd.DataFrame, baseline: str) -> Table:
    """Give after how many runs plans have paid off: the median over the cases at each J, and the share that does."""
    note = (
        f"Runs after which choosing ({', '.join(CHOOSING_PHASES)}) has paid off against {baseline}: the median over "
        "the cases, without and with compiling, and the share of the cases that pay off at all."
    )
    rows = derived[~derived["is_baseline"] & derived["break_even_runs"].notna()]
    rows = rows.assign(paid_off_share=np.isfinite(rows["break_even_runs"]))
    grouped = rows.groupby(["op", "dtype", "width", "label"], sort=True)
    shown = grouped.size().rename("cases").to_frame().join(grouped[_PAID].median())
    return Table(
        "break-even", "When plans have paid off", note, shown.join(grouped["paid_off_share"].mean()).reset_index()
    )


def failure_groups(frame: pd.DataFrame) -> Table:
    """Count the failures by implementation, status and the first line of the reason."""
    failed = _failed(frame)
    grouped = failed.assign(reason=failed["reason"].map(first_line)).groupby(["label", "status", "reason"], sort=True)
    counts = grouped.agg(cases=("case_id", "size"), matrices=("matrix", "nunique")).reset_index()
    columns = ["label", "status", "cases", "matrices", "reason"]
    shown = counts.sort_values("cases", ascending=False, kind="stable")[columns]
    return Table("failure-groups", "Failures by reason", "", shown)


def failure_table(frame: pd.DataFrame) -> Table:
    """List every case that is not ok, with its whole reason."""
    note = "Every case without a result. A failure is not a missing value: means say how many they leave out."
    shown = _listed(_failed(frame), frame, ["status", "reason", "case_id"])
    return Table("failures", "Every failure", note, shown, Chapter.FAILURES)


def matrix_facts(frame: pd.DataFrame) -> Table:
    """Give size and shape of every matrix that was loaded."""
    known = frame[frame["matrix_hash"] != ""].drop_duplicates("matrix").sort_values("matrix", kind="stable")
    columns = ["matrix", "matrix_kind", "num_rows", "num_cols", "nnz", "mean_row", "longest_row", "matrix_hash"]
    facts = known.assign(mean_row=known["nnz"] / known["num_rows"], matrix_hash=known["matrix_hash"].str[:12])[columns]
    note = f"I x K, with the first digits of the pattern's SHA-256. {TWIN}"
    return Table("matrices", "Matrices", note, _filled(facts), Chapter.CASES)


def flag_table(derived: pd.DataFrame) -> Table:
    """List the cases whose samples were taken on a throttled device or spread widely."""
    shown = _listed(derived[derived["flags"] != ""], derived, [*_MEDIAN, "flags"])
    return Table("flags", "Flagged cases", "Samples are kept and flagged, never dropped.", shown, Chapter.CASES)


def checked_table(derived: pd.DataFrame) -> Table:
    """Count what passed its check on a device that gives no times."""
    grouped = derived[derived["status"] == Status.OK.value].groupby(["label", "op", "dtype"], sort=True)
    shown = grouped.agg(
        cases=("case_id", "size"), matrices=("matrix", "nunique"), max_rel_error=("max_rel_error", "max")
    )
    note = "Results that agreed with the float64 reference; errors are over the sum of the terms' magnitudes."
    return Table("checked", "Checked results", note, shown.reset_index())


def choices(seen: pd.DataFrame) -> pd.DataFrame:
    """Give how much faster the best plan with a chosen value is than the best with any other.

    A choice is a key of the configs whose values are names or switches and of which a search measured several, such as
    ``formats`` (a mixture beside one format alone) or ``preprocess``.

    Parameters
    ----------
    seen : DataFrame
        As `spmark.report.candidates.measured` gives it.

    Returns
    -------
    DataFrame
        One row for each op, dtype, label, choice and chosen value: ``cases`` and ``matrices`` that chose it while
        another value was measured; ``over_next_speedup`` with its interval over matrices, geometric mean of the best
        time with another value over the best time with this one; the least and the greatest.
    """
    about, keys = ["op", "dtype", "label", "matrix"], ["op", "dtype", "label", "choice", "chosen"]
    cases = seen.groupby(["case_id", "implementation_version", "environment"], sort=False)
    rows = [
        (*case[about].iloc[0], *chosen)
        for _, case in cases[[*about, "seen_us", "candidate"]]
        for chosen in _chosen(case["seen_us"].tolist(), case["candidate"].tolist())
    ]
    return by_group(
        pd.DataFrame(rows, columns=[*about, "choice", "chosen", "ratio"]),
        keys,
        lambda part: {
            "cases": len(part),
            "matrices": part["matrix"].nunique(),
            **geometric_mean(part["ratio"], list(part["matrix"])).columns("over_next_speedup"),
            "least_speedup": part["ratio"].min(),
            "greatest_speedup": part["ratio"].max(),
        },
    )


def choice_table(seen: pd.DataFrame) -> Table:
    """Give `choices` as a table, with a note for the reader."""
    note = (
        "Of the cases in which a search kept a plan with this value and also measured others: the best time with any "
        "other value over the best with the chosen one, geometric mean with a 95 % interval over matrices. The chosen "
        "one is the fastest of what was measured, so that 1 is the least there can be."
    )
    return Table("choices", "What choosing is worth", note, choices(seen))


def _chosen(times: Sequence[float], configs: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, float]]:
    """Give each choice of the fastest config, its value, and how much longer the fastest with another value takes."""
    least = min(times)
    for choice, chosen in configs[times.index(least)].items():
        if not isinstance(chosen, str | bool):
            continue
        others = [us for us, config in zip(times, configs, strict=True) if config.get(choice, chosen) != chosen]
        if others:
            yield choice, str(chosen), exp(log(min(others)) - log(least))


def _failed(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["status"] != Status.OK.value]


def _identity(frame: pd.DataFrame) -> list[str]:
    """List the columns that tell the cases of a frame apart: the seed is one where there are several."""
    return [name for name in _IDENTITY if name != "seed" or frame["seed"].nunique() > 1]


def _ordered(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.sort_values(list(_IDENTITY), kind="stable")


def _listed(rows: pd.DataFrame, frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Give columns of some rows of a frame in order, behind what tells the frame's cases apart."""
    return _ordered(rows)[[*_identity(frame), *columns]]


def _filled(frame: pd.DataFrame) -> pd.DataFrame:
    """Leave out columns that say nothing in any row."""
    empty = [name for name in frame if name not in _IDENTITY and (frame[name].isna() | (frame[name] == "")).all()]
    return frame.drop(columns=empty)
