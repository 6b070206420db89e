"""Write the tables of LO-SpMM's notes that compare speeds and searches, from the records of an H200.

    python scripts/lo_spmm_tables.py
    python scripts/lo_spmm_tables.py --tau

Speed-ups are medians over the interleaved baseline, and means are geometric, with intervals over layers. Seconds are
those of whole builds. `tests/test_notes.py` holds the tables against the records. `--tau` prints how alike proxies and
kernels rank candidates; it reads candidates, which `spmark fetch candidates` brings.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
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
from spmark.report.tables.winners import over_best_other

_Rows = TypeVar("_Rows", pd.DataFrame, "pd.Series[float]")
ROOT = Path(__file__).parents[1]
_RECORDS = ROOT / "report/reference/h200"
_NOTES = ROOT / "docs/notes/lo_spmm.md"
_BEGIN, _END = "<!-- scripts/lo_spmm_tables.py writes these tables: {name} -->\n\n", "<!-- end of these tables -->\n"
_SEARCHES = ("lo_spmm_paper", "lo_spmm_rank_paper", "ec_spmm_paper", "cublaslt_best")
_PLAIN = ("cublas", "rowsplit", "nnzbalanced", "gespmm")
_PRUNED = "DLMC, J = 512"
"""What rows of real pruned layers are called."""


def main() -> None:
    """Put the tables between their marks in the notes, or print Kendall's tau."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--tau", action="store_true", help="print Kendall's tau of proxies and kernels")
    if asked.parse_args().tau:
        for sweep, proxies, kernels in (
            ("lo_spmm_table4_published", "lo_spmm_paper", "exhaustive_paper"),
            ("lo_spmm_table4_mape", "lo_spmm_proxies", "exhaustive"),
        ):
            sys.stdout.write(f"{sweep}\n{tau(sweep, proxies, kernels).describe().to_string()}\n")
        return
    _NOTES.write_text(rewritten(_NOTES.read_text()))


def rewritten(notes: str) -> str:
    """Give the notes with the tables as the records have them."""
    for name, table in TABLES.items():
        begin = _BEGIN.format(name=name)
        before, rest = notes.split(begin)
        notes = before + begin + table() + "\n" + _END + rest.split(_END, 1)[1]
    return notes


def speeds() -> str:
    """Give speed-ups over the fastest cuSPARSE of the searches as published, by sparsity."""
    rows = _figure_10()
    rows = rows[rows["label"].isin(_SEARCHES)]
    whole = rows.groupby(list(PROBLEM))["label"].transform("nunique") == len(_SEARCHES)
    lines = []
    for of, part in _parts(rows[whole]):
        means = [_shown(part[part["label"] == label], "speedup") for label in _SEARCHES]
        lines.append((f"{of} ({len(part.drop_duplicates(list(PROBLEM)))})", *means))
    return _table(("layers", *(f"`{label}`" for label in _SEARCHES)), lines)


def against() -> str:
    """Give how many times as fast `lo_spmm_paper` is as others, on generated layers."""
    rows = _figure_10()
    ours = rows[rows["label"] == "lo_spmm_paper"].set_index(list(PROBLEM))["speedup"]
    lines = []
    for said, label in (
        ("cuSPARSE's default algorithm", "cusparse"), ("cuBLAS", "cublas"), ("`ec_spmm_paper`", "ec_spmm_paper"),
        ("`lo_spmm_rank_paper`", "lo_spmm_rank_paper"), ("`lo_spmm`, the default", "lo_spmm"),
    ):  # fmt: skip
        lines.append((said, *_ratios(_with_ratio(ours, rows[rows["label"] == label]))))
    best = over_best_other(rows)
    best = best[best["label"] == "lo_spmm_paper"].assign(ratio=lambda rows: rows["over_best"])
    return _table(("`lo_spmm_paper` over", "generated layers", "70 %", "98 %", "least", "slower"), [
        *lines, ("the fastest of all others", *_ratios(best)),
    ])  # fmt: skip


def others() -> str:
    """Give the times of other implementations over those of `lo_spmm`, the default, on generated layers by sparsity."""
    rows = _figure_10()
    rows = rows[_generated(rows) & rows["label"].isin(("lo_spmm", "cusparse", *_PLAIN))]
    ours = rows[rows["label"] == "lo_spmm"].set_index(list(PROBLEM))["speedup"]
    best = over_best_other(rows)
    ratios = [ours.rename("ratio").reset_index(), *(_with_ratio(ours, rows[rows["label"] == one]) for one in _PLAIN)]
    ratios.append(best[best["label"] == "lo_spmm"].assign(ratio=lambda rows: rows["over_best"]))
    columns = [dict(_by_sparsity(one.set_index("matrix", drop=False))) for one in ratios]
    lines = []
    for of, part in columns[-1].items():
        exact = of == "all"  # intervals of single sparsities would make the table too wide
        means = [_shown(one[of], "ratio") if exact else f"{mean_of(one[of]['ratio']):.2f}" for one in columns[:-1]]
        lines.append((f"{of} ({len(part)})", *means, f"{_shown(part, 'ratio')} ({(part['ratio'] < 1).sum()})"))
    return _table(("layers", "fastest cuSPARSE", *(f"`{label}`" for label in _PLAIN), "fastest of all others"), lines)


def large() -> str:
    """Give microseconds, the chosen config and the seconds of the build for the two large layers at J = 512."""
    rows = _figure_10()
    rows = rows[rows["matrix"].str.contains("_3072x768@|_768x3072@") & (rows["width"] == 512)]
    lines = []
    for matrix, part in rows.groupby("matrix"):
        of = part.set_index("label")
        shape, _, sparsity = str(matrix).rpartition("_")[2].partition("@")
        config = of.at["lo_spmm", "config"]
        chosen = ", ".join(str(config[name]) for name in ("tile_rows", "threads", "tiles_per_block", "split"))
        best = of.at["lo_spmm", "median_us"] * of.at["lo_spmm", "speedup"]
        times = (best, *(of.at[label, "median_us"] for label in (*_PLAIN, "lo_spmm")))
        build = spent_s(part["phases_s"])[part["label"] == "lo_spmm"].item()
        said = f"{shape.replace('x', ' x ')}, {100 * float(sparsity):.0f} %"
        lines.append((said, *(f"{us:.3g}" for us in times), f"({chosen})", f"{build:.1f}"))
    head = ("layer", "cuSPARSE", *(f"`{label}`" for label in _PLAIN), "ours")
    return _table((*head, "(M1, threads, tiles a block, parts)", "build"), lines)


def seconds() -> str:
    """Give the seconds of searches over those of the rank model's search, by sparsity, in PTX and in C++."""
    head = ("all proxies", "EC-SpMM's way", "SparTA's way")
    made = []
    for said, sweep, ending in (
        ("as published, PTX", "lo_spmm_fig11_search_time", "_paper_ptx"),
        ("as published, C++", "lo_spmm_fig11_search_time_c", "_paper_c"),
        ("our space, PTX", "lo_spmm_fig11_search_time", "_ptx"),
        ("our space, C++", "lo_spmm_fig11_search_time_c", "_c"),
    ):
        rows = _solved(sweep)
        rows = rows.assign(seconds=spent_s(rows["phases_s"]))
        spent = rows.pivot_table(index="matrix", columns="label", values="seconds", aggfunc="last")
        ways = [f"{way}{ending}" for way in ("proxies", "ec_spmm", "exhaustive", "rank")]
        spent = spent[ways].dropna()
        parts = list(_by_sparsity(spent))
        for of, part in parts[-1:] if len(parts) == 2 else parts:
            over = part[ways[:3]].div(part[ways[3]], axis=0)
            cells = [f"{mean_of(over[way]):.1f} ({over[way].min():.1f} to {over[way].max():.1f})" for way in ways[:3]]
            made.append((f"{said}, {of} ({len(part)})", f"{part[ways[3]].median():.1f} s", *cells))
    return _table(("searches, layers", "the rank model's", *head), made)


def deviations() -> str:
    """Give the deviation of picks from the exhaustive search's, in the mean and at most, by sparsity."""
    made = []
    for sweep, best, labels in (
        ("lo_spmm_table4_published", "exhaustive_paper", ("lo_spmm_paper", "lo_spmm_rank_paper")),
        ("lo_spmm_table4_mape", "exhaustive", ("lo_spmm_proxies", "lo_spmm", "lo_spmm_rank", "estimate")),
    ):
        fast = _solved(sweep).pivot_table(index="matrix", columns="label", values="speedup", aggfunc="last")
        fast = fast[[best, *labels]].dropna()
        for label in labels:
            off = (fast[best] / fast[label] - 1).abs()
            means = {of: _percent(part.mean()) for of, part in _by_sparsity(off)}
            cells = [means.get(of, "") for of in ("70 %", "80 %", "90 %", "95 %", "98 %", "all")]
            made.append((f"`{label}`, over `{best}` ({len(fast)})", *cells, _percent(off.max())))
    return _table(("picks (layers)", "70 %", "80 %", "90 %", "95 %", "98 %", "all", "greatest"), made)


def tau(sweep: str, proxies: str, kernels: str) -> pd.DataFrame:
    """Give `agreement` of two searches of a published sweep.

    Raises
    ------
    RecordError
        Records or candidates cannot be read.
    """
    rows = _derived(sweep)
    return agreement(measured(rows, load_candidates(sorted(_RECORDS.glob("lo_spmm_*")), rows)), proxies, kernels)


def agreement(seen: pd.DataFrame, proxies: str, kernels: str) -> pd.DataFrame:
    """Say how alike two searches rank the candidates that both of them ran.

    Parameters
    ----------
    seen : DataFrame
        As `spmark.report.candidates.measured` gives it. Candidates of one launch are one.
    proxies, kernels : str
        Labels of the two searches.

    Returns
    -------
    DataFrame
        By matrix: Kendall's ``tau``, the ``loss`` of the candidate that the proxies find fastest over the fastest
        kernel, and the number of ``candidates``.
    """
    seen = seen.assign(key=[_kernel(config) for config in seen["candidate"]])
    found = {}
    for matrix, of_matrix in seen.groupby("matrix"):
        times = of_matrix.pivot_table(index="key", columns="label", values="seen_us", aggfunc="last")
        if {proxies, kernels} <= set(times.columns):
            both = times[[proxies, kernels]].dropna()
            picked = both[kernels].loc[str(both[proxies].idxmin())] / both[kernels].min() - 1
            found[matrix] = kendalltau(both[proxies], both[kernels]).statistic, picked, len(both)
    return pd.DataFrame.from_dict(found, orient="index", columns=["tau", "loss", "candidates"])


def _kernel(config: dict[str, object]) -> str:
    """Name the launch of a candidate, which its proxy shares."""
    return " ".join(str(config.get(name)) for name in ("tile_rows", "threads", "cpt", "tiles_per_block", "split"))


@cache
def _derived(sweep: str) -> pd.DataFrame:
    """Give the rows of all cases that a packaged sweep lists, also of those that another sweep measured."""
    listed = {case.case_id: case.label for case in expand(Sweep.load(sweep, ()), DeviceKind.CUDA)}
    rows = _records()
    rows = rows[rows["case_id"].isin(listed)]
    return rows.assign(label=rows["case_id"].map(listed))


@cache
def _records() -> pd.DataFrame:
    return derive(current(load_records(sorted(_RECORDS.glob("lo_spmm_*")))), BASELINES["cuda"])


@cache
def _solved(sweep: str) -> pd.DataFrame:
    rows = _derived(sweep)
    return rows[rows["speedup"].notna()].reset_index(drop=True)


_figure_10 = partial(_solved, "lo_spmm_fig10_speedup")


def _with_ratio(ours: pd.Series[float], rows: pd.DataFrame) -> pd.DataFrame:
    theirs = rows.set_index(list(PROBLEM))
    return (ours / theirs["speedup"]).rename("ratio").dropna().reset_index()


def _ratios(rows: pd.DataFrame) -> Iterator[str]:
    """Give the mean of ``ratio`` over generated layers, that at 70 and 98 %, the least, and how many are below 1."""
    generated = rows[_generated(rows)]
    yield _shown(generated, "ratio")
    parts = dict(_by_sparsity(generated.set_index("matrix")))
    yield from (f"{mean_of(parts[of]['ratio']):.2f}" for of in ("70 %", "98 %"))
    yield f"{generated['ratio'].min():.2f}"
    yield f"{(generated['ratio'] < 1).sum()} of {len(generated)}"


def _parts(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Give generated layers by sparsity and together, then the real ones."""
    generated = rows[_generated(rows)]
    yield from _by_sparsity(generated.set_index("matrix", drop=False))
    yield _PRUNED, rows[~_generated(rows)]


def _generated(rows: pd.DataFrame) -> pd.Series[bool]:
    return rows["matrix"].str.startswith("dnn_layers/")


def _by_sparsity(rows: _Rows) -> Iterator[tuple[str, _Rows]]:
    """Give the rows of each sparsity, which the names in their index end with, and all of them."""
    sparsity = rows.index.str.rpartition("@").get_level_values(2)
    for of in sorted(set(sparsity)):
        yield f"{100 * float(of):.0f} %", rows[sparsity == of]
    yield "all", rows


def _shown(rows: pd.DataFrame, column: str) -> str:
    mean = over_matrices(rows, column).columns("mean")
    return f"{mean['mean']:.2f} [{mean['mean_low']:.2f}, {mean['mean_high']:.2f}]"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


TABLES: dict[str, Callable[[], str]] = {
    "others": others, "large": large, "speeds": speeds, "against": against, "seconds": seconds,
    "deviations": deviations,
}  # fmt: skip
"""What writes each of the tables, by the name in its mark."""

if __name__ == "__main__":
    main()
