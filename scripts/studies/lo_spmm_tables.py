"""Write the tables of LO-SpMM's notes that compare speeds and searches, from the records of an H200.

    python scripts/studies/lo_spmm_tables.py
    python scripts/studies/lo_spmm_tables.py --tau

Speed-ups are medians over the interleaved baseline, and means are geometric, with intervals over layers. Seconds are
those of whole builds. `tests/test_notes.py` holds the tables against the records. `--tau` prints how alike proxies and
kernels rank candidates; it reads candidates, which `spmark fetch candidates` brings.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

import pandas as pd
from scipy.stats import kendalltau

from spmark.datasets.sweep.model import Sweep, expand
from spmark.impls.core.baseline import BASELINES
from spmark.impls.core.devicespec import DeviceKind
from spmark.report.analysis.cases import PROBLEM, derive, spent_s
from spmark.report.analysis.means import over_matrices
from spmark.report.analysis.statistics import mean_of
from spmark.report.candidates import load_candidates, measured
from spmark.report.records import current, load_records

_Rows = TypeVar("_Rows", pd.DataFrame, "pd.Series[float]")
ROOT = Path(__file__).parents[2]
_RECORDS = sorted((ROOT / "report/reference/h200").glob("lo_spmm_*"))
_NOTES = ROOT / "docs/notes/lo_spmm.md"
_BEGIN, _END = (
    "<!-- scripts/studies/lo_spmm_tables.py writes these tables: {name} -->\n\n",
    "<!-- end of these tables -->\n",
)
_FIGURE_10 = "lo_spmm_fig10_speedup"
_SEARCHES = ("lo_spmm_paper", "lo_spmm_rank_paper", "ec_spmm_paper", "cublaslt_best")
_PLAIN = ("cublas", "rowsplit", "nnzbalanced", "gespmm")
_SPARSITIES = ("70 %", "80 %", "90 %", "95 %", "98 %", "all")


def rewritten(notes: str) -> str:
    """Give the notes with the tables as the records have them."""
    for name, table in TABLES.items():
        begin = _BEGIN.format(name=name)
        before, rest = notes.split(begin)
        notes = before + begin + table() + "\n" + _END + rest.split(_END, 1)[1]
    return notes


def speeds() -> str:
    """Give speed-ups over the fastest cuSPARSE of the searches as published, by sparsity."""
    solved = by_label(_FIGURE_10)[list(_SEARCHES)].dropna()
    parts = [*by_sparsity(generated(solved)), ("DLMC, J = 512", solved.drop(generated(solved).index))]
    lines = [(f"{of} ({len(part)})", *(shown(part[label]) for label in _SEARCHES)) for of, part in parts]
    return markdown(("layers", *(f"`{label}`" for label in _SEARCHES)), lines)


def against() -> str:
    """Give how many times as fast `lo_spmm_paper` is as others, on generated layers."""
    solved, own = generated(by_label(_FIGURE_10)), solved_rows(_FIGURE_10)["implementation"] == "lo_spmm"
    rivals = solved.drop(columns=solved_rows(_FIGURE_10)["label"][own].unique())
    others = {
        "cuSPARSE's default algorithm": solved["cusparse"], "cuBLAS": solved["cublas"],
        "`ec_spmm_paper`": solved["ec_spmm_paper"], "`lo_spmm_rank_paper`": solved["lo_spmm_rank_paper"],
        "`lo_spmm`, the default": solved["lo_spmm_extended"],
        "the fastest of all others": rivals.max(axis=1),
    }  # fmt: skip
    lines = []
    for said, theirs in others.items():
        ratio = (solved["lo_spmm_paper"] / theirs).dropna()
        parts = dict(by_sparsity(ratio))
        ends = (f"{mean_of(parts[of]):.2f}" for of in ("70 %", "98 %"))
        lines.append((said, shown(ratio), *ends, f"{ratio.min():.2f}", f"{(ratio < 1).sum()} of {len(ratio)}"))
    return markdown(("`lo_spmm_paper` over", "generated layers", "70 %", "98 %", "least", "slower"), lines)


def others() -> str:
    """Give the times of other implementations over those of `lo_spmm`, the default, on generated layers by sparsity."""
    solved = generated(by_label(_FIGURE_10))[["lo_spmm_extended", "cusparse", *_PLAIN]]
    ours = solved.pop("lo_spmm_extended")
    ratios = {"fastest cuSPARSE": ours} | {f"`{label}`": ours / solved[label] for label in _PLAIN}
    ratios["fastest of all others"] = ours / solved.max(axis=1)
    columns = [dict(by_sparsity(ratio.dropna())) for ratio in ratios.values()]
    lines = []
    for of, best in columns[-1].items():
        # Intervals of single sparsities would make the table too wide.
        means = [shown(one[of]) if of == "all" else f"{mean_of(one[of]):.2f}" for one in columns[:-1]]
        lines.append((f"{of} ({len(best)})", *means, f"{shown(best)} ({(best < 1).sum()})"))
    return markdown(("layers", *ratios), lines)


def large() -> str:
    """Give microseconds, the chosen config and the seconds of the build for the two large layers at J = 512."""
    rows = solved_rows(_FIGURE_10)
    rows = rows[rows["matrix"].str.contains("_3072x768@|_768x3072@") & (rows["width"] == 512)]
    lines = []
    for matrix, part in rows.groupby("matrix"):
        of = part.set_index("label")
        shape, _, sparsity = str(matrix).rpartition("_")[2].partition("@")
        config = of.at["lo_spmm_extended", "config"]
        chosen = ", ".join(str(config[name]) for name in ("tile_rows", "threads", "tiles_per_block", "split"))
        best = of.at["lo_spmm_extended", "median_us"] * of.at["lo_spmm_extended", "speedup"]
        times = (best, *(of.at[label, "median_us"] for label in (*_PLAIN, "lo_spmm_extended")))
        said = f"{shape.replace('x', ' x ')}, {100 * float(sparsity):.0f} %"
        lines.append(
            (said, *(f"{us:.3g}" for us in times), f"({chosen})", f"{of.at['lo_spmm_extended', 'seconds']:.1f}")
        )
    head = ("layer", "cuSPARSE", *(f"`{label}`" for label in _PLAIN), "ours")
    return markdown((*head, "(M1, threads, tiles a block, parts)", "build"), lines)


def seconds() -> str:
    """Give the seconds of searches over those of the rank model's search, by sparsity, in PTX and in C++."""
    lines = []
    for said, sweep, ending in (
        ("as published, PTX", "lo_spmm_fig11_search_time", "_paper_ptx"),
        ("as published, C++", "lo_spmm_fig11_search_time_c", "_paper_c"),
        ("our space, PTX", "lo_spmm_fig11_search_time", "_ptx"),
        ("our space, C++", "lo_spmm_fig11_search_time_c", "_c"),
    ):
        *ways, rank = (f"{way}{ending}" for way in ("proxies", "ec_spmm", "exhaustive", "rank"))
        parts = list(by_sparsity(by_label(sweep, "seconds", ["matrix"])[[*ways, rank]].dropna()))
        for of, part in parts[-1:] if len(parts) == 2 else parts:
            over = part[ways].div(part[rank], axis=0)
            cells = [f"{mean_of(over[way]):.1f} ({over[way].min():.1f} to {over[way].max():.1f})" for way in ways]
            lines.append((f"{said}, {of} ({len(part)})", f"{part[rank].median():.1f} s", *cells))
    head = ("searches, layers", "the rank model's", "all proxies", "EC-SpMM's way", "SparTA's way")
    return markdown(head, lines)


def deviations() -> str:
    """Give the deviation of picks from the exhaustive search's, in the mean and at most, by sparsity."""
    lines = []
    for sweep, best, labels in (
        ("lo_spmm_table4_published", "exhaustive_paper", ["lo_spmm_paper", "lo_spmm_rank_paper"]),
        ("lo_spmm_table4_mape", "exhaustive", ["lo_spmm_proxies", "lo_spmm_extended", "lo_spmm_rank", "estimate"]),
    ):
        fast = by_label(sweep, index=["matrix"])[[best, *labels]].dropna()
        for label in labels:
            off = 100 * (fast[best] / fast[label] - 1).abs()
            means = {of: f"{part.mean():.1f} %" for of, part in by_sparsity(off)}
            cells = [means.get(of, "") for of in _SPARSITIES]
            lines.append((f"`{label}`, over `{best}` ({len(fast)})", *cells, f"{off.max():.1f} %"))
    return markdown(("picks (layers)", *_SPARSITIES, "greatest"), lines)


def tau(sweep: str, proxies: str, kernels: str) -> pd.DataFrame:
    """Say how alike two searches of a published sweep rank the candidates that both of them ran.

    Returns
    -------
    DataFrame
        By matrix: Kendall's ``tau``, the ``loss`` of the candidate that the proxies find fastest over the fastest
        kernel, and the number of ``candidates``. Candidates of one launch are one.

    Raises
    ------
    RecordError
        Records or candidates cannot be read.
    """
    rows = listed_rows(sweep)
    seen = measured(rows, load_candidates(_RECORDS, rows))
    launch = ("tile_rows", "threads", "cpt", "tiles_per_block", "split")  # which a kernel's proxy shares
    seen = seen.assign(key=[" ".join(str(config.get(name)) for name in launch) for config in seen["candidate"]])
    found = {}
    for matrix, of_matrix in seen.groupby("matrix"):
        times = of_matrix.pivot_table(index="key", columns="label", values="seen_us", aggfunc="last")
        if {proxies, kernels} <= set(times.columns):
            both = times[[proxies, kernels]].dropna()
            picked = both[kernels].loc[str(both[proxies].idxmin())] / both[kernels].min() - 1
            found[matrix] = kendalltau(both[proxies], both[kernels]).statistic, picked, len(both)
    return pd.DataFrame.from_dict(found, orient="index", columns=["tau", "loss", "candidates"])


@cache
def _records() -> pd.DataFrame:
    return derive(current(load_records(_RECORDS)), BASELINES["cuda"])


def listed_rows(sweep: str) -> pd.DataFrame:
    """Give the rows of all cases that a packaged sweep lists, also of those that another sweep measured."""
    cases = expand(Sweep.load(sweep), DeviceKind.CUDA)
    listed = {known: case.label for case in cases for known in (case.case_id, *case.other_ids)}
    rows = _records()
    rows = rows[rows["case_id"].isin(listed)]
    return rows.assign(label=rows["case_id"].map(listed), seconds=spent_s(rows["phases_s"]))


def solved_rows(sweep: str) -> pd.DataFrame:
    """Give the rows of `listed_rows` that have a speed-up."""
    rows = listed_rows(sweep)
    return rows[rows["speedup"].notna()]


def by_label(sweep: str, values: str = "speedup", index: Sequence[str] = PROBLEM) -> pd.DataFrame:
    """Give a column of a sweep's solved cases as a row for each problem and a column for each label."""
    return solved_rows(sweep).pivot_table(index=list(index), columns="label", values=values, aggfunc="last", sort=False)


def generated(rows: pd.DataFrame) -> pd.DataFrame:
    """Keep the generated layers, and leave real pruned ones out."""
    return rows[rows.index.get_level_values("matrix").str.startswith("dnn_layers/")]


def by_sparsity(rows: _Rows) -> Iterator[tuple[str, _Rows]]:
    """Give the rows of each sparsity, which names of layers end with, and all of them."""
    sparsity = rows.index.get_level_values("matrix").str.rpartition("@").get_level_values(2)
    for of in sorted(set(sparsity)):
        yield f"{100 * float(of):.0f} %", rows[sparsity == of]
    yield "all", rows


def shown(ratios: pd.Series[float]) -> str:
    """Write the geometric mean with its interval over layers."""
    mean = over_matrices(ratios.rename("ratio").reset_index(), "ratio").columns("mean")
    return f"{mean['mean']:.2f} [{mean['mean_low']:.2f}, {mean['mean_high']:.2f}]"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table."""
    return "".join(f"| {' | '.join(line)} |\n" for line in [head, ["---"] * len(head), *rows])


TABLES = {table.__name__: table for table in (others, large, speeds, against, seconds, deviations)}
"""What writes each of the tables, by the name in its mark."""

if __name__ == "__main__":
    if sys.argv[1:] == ["--tau"]:
        for asked in (
            ("lo_spmm_table4_published", "lo_spmm_paper", "exhaustive_paper"),
            ("lo_spmm_table4_mape", "lo_spmm_proxies", "exhaustive"),
        ):
            sys.stdout.write(f"{asked[0]}\n{tau(*asked).describe().to_string()}\n")
    else:
        _NOTES.write_text(rewritten(_NOTES.read_text()))
