"""The report's figures, and which of them to draw. A panel is one op and dtype, a colour one implementation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pandas as pd

from spmark.report.analysis.cases import panels_of
from spmark.report.analysis.tiles import published_agreement
from spmark.report.figures import ablation, costs, predictions, roof, series, speedups, steps
from spmark.report.figures.plot import Plot

Draw = Callable[[float], Plot]
"""Gives a figure for a width in inches."""
_ALIKE = 0.05
"""Memory that differs by no more from the baseline's everywhere is not drawn by default."""


def plots(derived: pd.DataFrame, baseline: str | None, *, every: bool = False) -> list[Draw]:
    """List the figures that the records of one device can fill, but for those of `search_plots`.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it; labels without any result are left out.
    baseline : str or None
        What the speed-ups are over, for captions and axes.
    every : bool
        All figures. By default: speed-ups, for each matrix and against J; sparse layers in the steps of networks; times
        over a number that matrices are made by; the time of searches and when they have paid off; costs over bucket
        widths; memory where it differs.
    """
    derived = with_results(derived)
    rivals = derived[~derived["is_baseline"]]
    faster = rivals[rivals["speedup"].notna()] if baseline else rivals.iloc[:0]
    bytes_over = costs.memory_ratios(derived)["memory_ratio"] if baseline else rivals["speedup"].iloc[:0]
    over: dict[str, Any] = {"baseline": baseline}
    listed: list[tuple[bool, Callable[..., Plot], dict[str, Any]]] = [
        (not faster.empty, speedups.speedup_per_matrix, over),
        *(
            (part["width"].nunique() > 1, speedups.speedup_per_width, {"op": op, "dtype": dtype} | over)
            for (op, dtype), part in panels_of(faster)
        ),
        (every and faster.loc[faster["nnz"].notna(), "matrix"].nunique() > 1, speedups.speedup_over_size, over),
        (not steps.steps_of(derived).empty, steps.step_parts, {}),
        (not series.series_of(derived).empty, series.time_over_series, {}),
        *(
            (every and ablation.drawable(derived, ratio), ablation.variant_ratios, {"ratio": ratio})
            for ratio in ablation.RATIOS
        ),
        *((every and roof.has_roof(derived, of), roof.roof_shares, {"roof": of}) for of in roof.ROOFS),
        (not costs.searched(derived).empty, costs.search_time, {}),
        (every and not costs.built(derived).empty, costs.overhead_by_phase, {}),
        (not predictions.priced(derived).empty, predictions.cost_model, {}),
        (bool(baseline and rivals["break_even_runs"].notna().any()), costs.break_even, over),
        (len(bytes_over) > 0 and (every or (bytes_over - 1).abs().max() > _ALIKE), costs.memory_per_matrix, over),
    ]
    return [partial(_drawn, draw, derived, options) for shown, draw, options in listed if shown]


def _drawn(draw: Callable[..., Plot], derived: pd.DataFrame, options: Mapping[str, Any], width_in: float) -> Plot:
    return draw(derived, width_in=width_in, **options)


def search_plots(seen: pd.DataFrame, derived: pd.DataFrame) -> list[Draw]:
    """List the figures that what searches saw on one device can fill.

    Parameters
    ----------
    seen : DataFrame
        What searches measured, as `spmark.report.candidates.measured` gives it.
    derived : DataFrame
        ``device, label, implementation`` of the page's cases `with_results`, for the looks of labels.
    """
    plans = predictions.predicted(seen)
    if plans.empty:
        return []
    tiles = predictions.tiles_held_out(plans, published_agreement(str(derived["device"].iloc[0])))
    drawn = [partial(predictions.predicted_times, plans, derived)]
    return [*drawn, partial(predictions.tile_times, tiles)] if len(tiles) else list(drawn)


def with_results(derived: pd.DataFrame) -> pd.DataFrame:
    """Keep the cases of the labels that have any result: figures show no others."""
    labels = derived.loc[derived["median_us"].notna(), "label"].unique()
    return derived[derived["label"].isin(labels)]
