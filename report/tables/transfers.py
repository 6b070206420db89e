"""Tables of studies of moved cost models: gains at the shared sizes, what the subject is ahead of, sizes, costs."""

from __future__ import annotations

import pandas as pd

from spmark.report.analysis.methods import SAID, Methods
from spmark.report.analysis.transfers import PANEL, SIZES, Moved
from spmark.report.tables.table import Table

_WHERE = ["op", "source", "target", "machine"]
_GAINS = [
    *_WHERE, "method", *SIZES, "seeds", "matrices", "configs", "top1_speedup", "top5_speedup", "optimum_speedup",
    "top1_share", "top5_share", "ape_share", "opa_score", "opa_ceiling_score", "tau_score", "tau_ceiling_score",
]  # fmt: skip
_OF_SIZES = [
    *_WHERE, "method", *SIZES, "source_samples", "target_samples", "seeds", "top1_speedup", "top1_share",
    "ape_share", "data_cost_score",
]  # fmt: skip
_NO_SEEDS = "Where one seed was trained there is no interval."


def gain_table(moved: Moved, methods: Methods) -> Table:
    """Give the gains of every method at the headline sizes, the best first choice first."""
    note = (
        "Speed-ups over the platform's default config, geometric means over matrices with Student's interval over "
        "seeds; the optimum's interval is over matrices. Shares are of the optimum's speed-up. APE is the mean excess "
        "of the first choice's time over the optimum's. Ceilings: one half of the samples against the other. "
        + _NO_SEEDS
    )
    frame = moved.gains[moved.gains["headline"].astype(bool)]
    ordered = _panel_by_panel(frame.sort_values("top1_speedup", ascending=False, kind="stable"), moved)
    return Table("moved-gains", "What each method gains", note, _shown(ordered, _GAINS, methods))


def compared_table(moved: Moved, methods: Methods) -> Table:
    """Give what the subject is ahead of with the same samples and as many measured configs."""
    subject = methods.title(methods.subject)
    note = (
        f"Time of the baseline's choice over that of {subject}'s, geometric mean over matrices with an interval over "
        f"matrices: above 1 {subject} is faster. Ahead is where the whole interval is above 1. The first choice is "
        "compared with a first choice, the best of five measured configs with another one's best of five."
    )
    frame = moved.compared.assign(
        baseline=moved.compared["baseline"].map(methods.title), choice=moved.compared["choice"].map(dict(SAID))
    )
    kept = [*_WHERE, "baseline", "choice", "matrices", "ahead_speedup", "ahead_speedup_low", "ahead_speedup_high"]
    return Table("moved-compared", f"{subject} beside baselines of equal effort", note, frame[[*kept, "ahead"]])


def size_table(moved: Moved, methods: Methods) -> Table:
    """Give gains over sizes as the paper's table 2 does, with the optimum as the last row of each panel."""
    costs = methods.costs
    note = (
        "After the paper's table 2. Samples are matrices times the configs of one. The cost of the data is the "
        f"paper's assumption, in millions: {costs.source:g} for a sample of the source, {costs.target:g} for a "
        f"simulated one of the target; measured targets have no such figure. {_NO_SEEDS}"
    )
    figures = {name for figure in methods.figures if figure.kind == "sizes" for name in (*figure.methods, *figure.held)}
    gains = moved.gains[moved.gains["method"].isin(figures | set(methods.baselines))]
    samples = {f"{side}_samples": gains[f"{side}_matrices"] * gains["configs"] for side in ("source", "target")}
    cost = (samples["source_samples"] * costs.source + samples["target_samples"] * costs.target) / 1e6
    rows = gains.assign(**samples, data_cost_score=cost.where(gains["simulated"].astype(bool)))
    best = gains.drop_duplicates(PANEL).assign(method="optimum", top1_share=1.0, ape_share=0.0)
    for end in ("", "_low", "_high"):
        best[f"top1_speedup{end}"] = best[f"optimum_speedup{end}"]
    ends = [f"{name}{end}" for name in ("top1_share", "ape_share") for end in ("_low", "_high")]
    best[[*ends, *SIZES, "seeds"]] = float("nan")
    place = {name: methods.place(str(name)) for name in rows["method"]}
    both = pd.concat([rows, best], ignore_index=True).assign(
        place=lambda frame: frame["method"].map(place).fillna(len(methods.methods))
    )
    ordered = _panel_by_panel(both.sort_values(["place", *SIZES], kind="stable"), moved)
    return Table(methods.table, "Gains over sizes (the paper's table 2)", note, _shown(ordered, _OF_SIZES, methods))


def cost_table(costs: pd.DataFrame, methods: Methods) -> Table:
    """Give the seconds of each part of each method, means over seeds.

    Parameters
    ----------
    costs : DataFrame
        As `spmark.report.transfers.load_transfers` gives it.
    methods : Methods
    """
    keys = ["method", "op", "source", "target", "what", "matrices", "configs", "cores", "machine"]
    means = costs.groupby(keys, sort=False, as_index=False).agg(seeds=("seed", "nunique"), spent_s=("seconds", "mean"))
    note = "Seconds of each part of a study, means over seeds; the machine is what did the work."
    return Table("moved-costs", "What collecting, training and choosing cost", note, _named(means, methods))


def _panel_by_panel(frame: pd.DataFrame, moved: Moved) -> pd.DataFrame:
    """Order the rows by panel as figures do; rows of one panel keep their order."""
    places = {key: place for place, key in enumerate(dict.fromkeys(zip(*(moved.gains[n] for n in PANEL), strict=True)))}
    own = [places[key] for key in zip(*(frame[name] for name in PANEL), strict=True)]
    return frame.assign(panel=own).sort_values("panel", kind="stable")


def _shown(frame: pd.DataFrame, columns: list[str], methods: Methods) -> pd.DataFrame:
    simulated = frame["simulated"].astype(bool)
    told = frame.assign(machine=frame["machine"].where(~simulated, "simulated"))
    ends = [f"{name}{end}" for name in columns for end in ("_low", "_high")]
    kept = [name for column in columns for name in (column, *(e for e in ends if e.startswith(f"{column}_")))]
    return _named(told[[name for name in dict.fromkeys(kept) if name in told]], methods)


def _named(frame: pd.DataFrame, methods: Methods) -> pd.DataFrame:
    return frame.assign(method=frame["method"].map(methods.title)).reset_index(drop=True)
