"""How good moved cost models are: gains by method and sizes, comparisons with baselines, curves over epochs.

A panel is one source platform, target platform, machine and operator. Within a panel, means are over the matrices that
all methods were judged on. Every config was chosen by the first half of the samples and is valued by the second half,
the optimum included, so that no choice gains by the noise of the samples that value it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isnan, nan
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from spmark.impls.core.problem import Op
from spmark.report.analysis.methods import Methods
from spmark.report.analysis.statistics import NOTHING, Interval, geometric_mean, student_half

PANEL = ["source", "target", "machine", "op"]
SIZES = ["source_matrices", "target_matrices"]
RATIOS = ("top1_speedup", "top5_speedup", "top1_share", "top5_share")
SCORES = ("ape_share", "opa_score", "tau_score")
GAINS = [
    *PANEL, "note", "simulated", "method", *SIZES, "headline", "seeds", "matrices", "configs",
    *(f"{name}{end}" for name in ("optimum_speedup", *RATIOS, *SCORES) for end in ("", "_low", "_high")),
    "greatest_top1_speedup", "greatest_top5_speedup", "opa_ceiling_score", "tau_ceiling_score",
]  # fmt: skip
COMPARED = [*PANEL, "simulated", "baseline", "choice", "matrices", "ahead_speedup", "ahead_speedup_low",
            "ahead_speedup_high", "ahead"]  # fmt: skip
MATRICES = [*PANEL, "simulated", "method", "matrix", "nnz", "top1_speedup", "top5_speedup", "optimum_speedup"]
CURVES = [*PANEL, "simulated", "phase", "epoch", "value_of", "seeds", "value", "value_low", "value_high"]
AHEAD, NOT_CLEARLY, BEHIND, MISSING = "yes", "not clearly", "no", "missing"
_TIMES = ["default_us", "optimum_us", "top1_us", "top5_us"]


@dataclass(frozen=True, eq=False)
class Moved:
    """What a study of moved cost models says."""

    gains: pd.DataFrame
    """`GAINS`, one row for each panel, method and pair of sizes. ``headline`` marks the sizes that methods share.

    Speed-ups are over the platform's default config. Intervals are over seeds, that of the optimum over matrices.
    """
    compared: pd.DataFrame
    """`COMPARED`: time of a baseline over the subject's, with an interval over matrices; one row for each choice."""
    matrices: pd.DataFrame
    """`MATRICES`, of the headline sizes, geometric means over seeds."""
    curves: pd.DataFrame
    """`CURVES`, of the subject at the headline sizes."""
    left_out: tuple[str, ...] = ()
    """Methods that were judged on no more than half of their panel's matrices."""


@dataclass(frozen=True, eq=False)
class _Panel:
    """The results of one panel on the matrices that its methods share."""

    names: dict[str, Any]
    """``PANEL``, ``note`` and ``simulated``."""
    rows: pd.DataFrame
    left_out: tuple[str, ...]

    @property
    def place(self) -> dict[str, Any]:
        """The columns of frames that need no note."""
        return {name: value for name, value in self.names.items() if name != "note"}


def derive_moved(results: pd.DataFrame, curves: pd.DataFrame, methods: Methods) -> Moved:
    """Derive everything that pages show of studies.

    Parameters
    ----------
    results, curves : DataFrame
        As `spmark.report.transfers.load_transfers` gives them; may be empty.
    methods : Methods
        Names the subject and the baselines.
    """
    gains, compared, matrices, drawn = [], [], [], []
    left_out: list[str] = []
    for panel in _panels(results):
        rows = _marked(_gains(panel), methods.subject)
        headline = panel.rows.merge(rows.loc[rows["headline"], ["method", *SIZES]], on=["method", *SIZES])
        gains.append(rows)
        compared += list(_compared(panel, headline, methods))
        matrices.append(_by_matrix(headline).assign(**panel.place))
        drawn.append(_curves(panel, curves, rows, methods.subject))
        left_out += panel.left_out
    return Moved(
        _joined(gains, GAINS),
        pd.DataFrame(compared, columns=COMPARED),
        _joined(matrices, MATRICES),
        _joined(drawn, CURVES),
        tuple(left_out),
    )


def panels_of(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Split a frame of `Moved` by panel, each with its title; simulated times are called so."""
    parts: Any = frame.groupby([*PANEL, "simulated"], sort=False)
    return [(panel_title(**dict(zip([*PANEL, "simulated"], key, strict=True))), part) for key, part in parts]


def over_seeds(values: ArrayLike, *, ratios: bool = False) -> Interval:
    """Give the mean over seeds of a training with Student's interval.

    Parameters
    ----------
    values : (n,) array_like
        One for each seed; NaN where a seed has none.
    ratios : bool
        Take the geometric mean, and the interval of the logarithms.

    Returns
    -------
    Interval
        The ends are NaN with fewer than two seeds.
    """
    known = np.asarray(values, np.float64)
    known = known[np.isfinite(known)]
    if known.size == 0:
        return NOTHING
    drawn = np.log(known) if ratios else known
    mean = float(drawn.mean())
    half = student_half(drawn, np.ones(drawn.size, np.intp)) if drawn.size > 1 else nan
    ends = (mean, mean - half, mean + half)
    return Interval(*(float(np.exp(end)) for end in ends)) if ratios else Interval(*ends)


def panel_title(source: str, target: str, machine: str, op: str, simulated: bool) -> str:
    """Name a panel."""
    where = "simulated" if simulated else machine
    return f"{op}, {source} to {target} ({where})" if source else f"{op}, {target} ({where})"


def _panels(results: pd.DataFrame) -> Iterator[_Panel]:
    ops = [op.value for op in Op]
    targets = {name: place for place, name in enumerate(dict.fromkeys(results["target"]))}
    parts = [(str(target), str(machine), str(op), part) for (target, machine, op), part in results.groupby(PANEL[1:])]
    for target, machine, op, part in sorted(parts, key=lambda of: (targets[of[0]], of[1], ops.index(of[2]))):
        # A method without a source platform stands beside those of every source.
        for source in [name for name in dict.fromkeys(part["source"]) if name] or [""]:
            rows = part[part["source"].isin([source, ""])]
            sets = {key: _judged(own) for key, own in rows.groupby(["method", *SIZES], sort=False)}
            few = {key for key, found in sets.items() if 2 * len(found) <= rows["matrix"].nunique()}
            common = set.intersection(*(found for key, found in sets.items() if key not in few) or [set()])
            keys = zip(rows["method"], *(rows[name] for name in SIZES), strict=True)
            rows = rows[np.array([key not in few for key in keys], bool) & rows["matrix"].isin(common)]
            if rows.empty:
                continue
            note = "; ".join(dict.fromkeys(rows["note"]))
            names = {"source": source, "target": target, "machine": machine, "op": op, "note": note}
            yield _Panel(names | {"simulated": "simulated" in f"{note} {machine}"}, _valued(rows), _named(few))


def _named(keys: Iterable[tuple[Any, ...]]) -> tuple[str, ...]:
    return tuple(f"{method} ({source} and {target} matrices)" for method, source, target in sorted(keys))


def _judged(rows: pd.DataFrame) -> set[str]:
    """Give the matrices that all seeds were judged on."""
    return set.intersection(*(set(own) for _, own in rows.groupby("seed")["matrix"]))


def _valued(rows: pd.DataFrame) -> pd.DataFrame:
    """Add what follows from the times of one row."""
    default, optimum = rows["default_us"], rows["optimum_us"]
    added = {f"{top}_speedup": default / rows[f"{top}_us"] for top in ("top1", "top5")}
    added |= {f"{top}_share": optimum / rows[f"{top}_us"] for top in ("top1", "top5")}
    ape = (rows["top1_us"] / optimum - 1).abs()
    named = {"opa_score": rows["opa"], "tau_score": rows["tau"], "ape_share": ape}
    return rows.assign(optimum_speedup=default / optimum, **added, **named)


def _gains(panel: _Panel) -> pd.DataFrame:
    gains, one_each = [], panel.rows.drop_duplicates("matrix")
    alike = geometric_mean(one_each["optimum_speedup"]).columns("optimum_speedup")
    alike |= {f"{score}_ceiling_score": float(one_each[f"{score}_ceiling"].mean()) for score in ("opa", "tau")}
    for key, rows in panel.rows.groupby(["method", *SIZES], sort=False):
        by_seed = rows.groupby("seed")
        row = panel.names | alike | dict(zip(["method", *SIZES], key, strict=True))
        row |= {"seeds": rows["seed"].nunique(), "matrices": rows["matrix"].nunique(), "headline": False}
        row["configs"] = float(rows["configs"].median())
        for name in RATIOS:
            means = by_seed[name].agg(lambda values: float(np.exp(np.log(values).mean())))
            row |= over_seeds(means, ratios=True).columns(name)
        for name in SCORES:
            row |= over_seeds(by_seed[name].mean()).columns(name)
        row |= {f"greatest_{top}_speedup": float(rows[f"{top}_speedup"].max()) for top in ("top1", "top5")}
        gains.append(row)
    return pd.DataFrame(gains, columns=GAINS)


def _marked(gains: pd.DataFrame, subject: str) -> pd.DataFrame:
    """Mark each method's row with the sizes that the subject shares with most other methods, else has most seeds of.

    A method without samples of a platform has 0 matrices of it at any sizes.
    """
    own = gains[gains["method"] == subject]
    own = gains if own.empty else own
    pairs = gains.groupby(SIZES)["method"].nunique()
    shared = [pairs[tuple(sizes)] for sizes in own[SIZES].to_numpy()]
    best = own.assign(shared=shared).sort_values(["shared", "seeds"], ascending=False, kind="stable").iloc[0]
    fits = np.logical_and.reduce([gains[name].isin([0, best[name]]) for name in SIZES])
    order = gains[fits].sort_values(SIZES, ascending=False, kind="stable").drop_duplicates("method").index
    return gains.assign(headline=gains.index.isin(order))


def _by_matrix(rows: pd.DataFrame) -> pd.DataFrame:
    """Give geometric means over seeds, one row for each method and matrix."""
    values = ["top1_speedup", "top5_speedup", "optimum_speedup"]
    logs = rows.assign(**{name: np.log(rows[name]) for name in values})
    means = logs.groupby(["method", "matrix"], sort=False).agg(nnz=("nnz", "first"), **{n: (n, "mean") for n in values})
    return means.assign(**{name: np.exp(means[name]) for name in values}).reset_index()


def _compared(panel: _Panel, headline: pd.DataFrame, methods: Methods) -> Iterator[dict[str, Any]]:
    times: Any = _by_matrix(headline).set_index(["method", "matrix"])
    known = set(headline["method"])
    for name, baseline in methods.beside(panel.names["target"], panel.names["op"]).items():
        for choice in baseline.choices:
            ratio, count = NOTHING, 0
            if {name, methods.subject} <= known:
                ratios = times.loc[methods.subject, f"{choice}_speedup"] / times.loc[name, f"{choice}_speedup"]
                ratio, count = geometric_mean(ratios), len(ratios)
            row = panel.place | {"baseline": name, "choice": choice, "matrices": count, "ahead": _ahead(ratio)}
            yield row | ratio.columns("ahead_speedup")


def _ahead(ratio: Interval) -> str:
    """Say whether the subject is ahead: with its whole interval, not clearly, or not."""
    if isnan(ratio.value):
        return MISSING
    if ratio.value <= 1:
        return BEHIND
    return NOT_CLEARLY if ratio.low <= 1 else AHEAD


def _curves(panel: _Panel, curves: pd.DataFrame, gains: pd.DataFrame, subject: str) -> pd.DataFrame:
    """Give means over seeds of every value of every epoch of the subject's training at the headline sizes."""
    own = gains[gains["headline"] & (gains["method"] == subject)]
    rows = curves.merge(own[["method", *SIZES]], on=["method", *SIZES])
    rows = rows[np.logical_and.reduce([rows[name] == panel.names[name] for name in ("source", "target", "op")])]
    told = [
        (row["phase"], row["epoch"], name, float(value))
        for row in rows.to_dict("records")
        for name, value in row["values"].items()
    ]
    found = pd.DataFrame(told, columns=["phase", "epoch", "value_of", "value"]).groupby(
        ["phase", "epoch", "value_of"], sort=False
    )
    means = [
        dict(zip(["phase", "epoch", "value_of"], key, strict=True))
        | {"seeds": len(part)}
        | over_seeds(part["value"]).columns("value")
        for key, part in found
    ]
    return pd.DataFrame(means, columns=CURVES[len(PANEL) + 1 :]).assign(**panel.place)


def _joined(parts: list[pd.DataFrame], columns: list[str]) -> pd.DataFrame:
    filled = [part for part in parts if len(part)]
    return pd.concat(filled, ignore_index=True)[columns] if filled else pd.DataFrame(columns=columns)
