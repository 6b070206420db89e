"""The report's figures, and which of them to draw. A panel is one op and dtype, a colour one implementation."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial

import pandas as pd

from spmark.report.analysis.groups import panels_of
from spmark.report.analysis.tiles import published_agreement
from spmark.report.figures.costmodel import cost_model, priced
from spmark.report.figures.costs import break_even, search_time, searched
from spmark.report.figures.memory import memory_per_matrix, memory_ratios
from spmark.report.figures.overheads import built, overhead_by_phase
from spmark.report.figures.plot import Drawing, Form, Plot, render
from spmark.report.figures.predictions import predicted, predicted_times, tile_times, tiles_held_out
from spmark.report.figures.roof import frozen_roof, has_roof, measured_roof
from spmark.report.figures.series import series_of, time_over_series
from spmark.report.figures.speedups import speedup_over_size, speedup_per_matrix, speedup_per_width
from spmark.report.figures.variants import RATIOS, drawable, variant_ratios

_log = logging.getLogger(__name__)


def draw_all(
    derived: pd.DataFrame, baseline: str | None, also: AbstractSet[Form] = frozenset(), which: slice = slice(None)
) -> Iterator[Drawing]:
    """Give every figure that the records of one device can fill, but for those of `draw_searches`.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it.
    baseline : str or None
        What the speed-ups are over, for captions and axes.
    also : set of Form
        As for `spmark.report.figures.plot.render`.
    which : slice
        Which of all figures are drawn.
    """
    kept = with_results(derived)
    resultless = sorted(set(derived["label"]) - set(kept["label"]))
    left_out = f" Without any result here, so not drawn: {', '.join(resultless)}." if resultless else ""
    for drawing in _drawn(_plots(kept, baseline)[which], also):
        yield replace(drawing, caption=drawing.caption + left_out)


def draw_first(derived: pd.DataFrame, baseline: str, also: AbstractSet[Form] = frozenset()) -> Iterator[Drawing]:
    """Give the figure that a first page begins with: speed-ups on each matrix, where there are any."""
    if derived.loc[~derived["is_baseline"], "speedup"].notna().any():
        (drawing,) = _drawn([partial(speedup_per_matrix, with_results(derived), baseline)], also)
        yield replace(drawing, name=f"overview-{drawing.name}")


def draw_searches(
    seen: pd.DataFrame, derived: pd.DataFrame, also: AbstractSet[Form] = frozenset()
) -> Iterator[Drawing]:
    """Give every figure that what searches saw on one device can fill.

    Parameters
    ----------
    seen : DataFrame
        What searches measured, as `spmark.report.candidates.measured` gives it.
    derived : DataFrame
        ``device, label, implementation`` of the page's cases `with_results`, for the looks of labels.
    also : set of Form
        As for `spmark.report.figures.plot.render`.
    """
    if predicted(seen).empty:
        return iter(())
    plots = [partial(predicted_times, seen, derived)]
    tiles = tiles_held_out(seen, published_agreement(str(derived["device"].iloc[0])))
    plots += [partial(tile_times, tiles)] if len(tiles) else []
    return _drawn(plots, also)


def with_results(derived: pd.DataFrame) -> pd.DataFrame:
    """Keep the cases of the labels that have any result: figures show no others."""
    labels = derived.loc[derived["median_us"].notna(), "label"].unique()
    return derived[derived["label"].isin(labels)]


def _drawn(plots: Iterable[Callable[[float], Plot]], also: AbstractSet[Form]) -> Iterator[Drawing]:
    for plot in plots:
        drawing = render(plot, also)
        _log.info("drawing figures: %s is done", drawing.name)
        yield drawing


def _plots(derived: pd.DataFrame, baseline: str | None) -> list[Callable[[float], Plot]]:
    """List the figures that can be drawn, each as a function of the width."""
    plots: list[Callable[[float], Plot]] = []
    rivals = derived[~derived["is_baseline"]]
    if baseline and rivals["speedup"].notna().any():
        plots.append(partial(speedup_per_matrix, derived, baseline))
        plots += [
            partial(speedup_per_width, derived, baseline, op, dtype)
            for (op, dtype), part in panels_of(rivals[rivals["speedup"].notna()])
            if part["width"].nunique() > 1
        ]
        if rivals.loc[rivals["speedup"].notna() & rivals["nnz"].notna(), "matrix"].nunique() > 1:
            plots.append(partial(speedup_over_size, derived, baseline))
    if not series_of(derived).empty:
        plots.append(partial(time_over_series, derived))
    plots += [partial(variant_ratios, derived, ratio) for ratio in RATIOS if drawable(derived, ratio)]
    of_roofs = (("frozen", frozen_roof), ("measured", measured_roof))
    plots += [partial(draw, derived) for roof, draw in of_roofs if has_roof(derived, roof)]
    of_building = ((search_time, searched), (overhead_by_phase, built), (cost_model, priced))
    plots += [partial(draw, derived) for draw, drawn in of_building if not drawn(derived).empty]
    if baseline and rivals["break_even_runs"].notna().any():
        plots.append(partial(break_even, derived, baseline))
    if baseline and not memory_ratios(derived).empty:
        plots.append(partial(memory_per_matrix, derived, baseline))
    return plots
