"""The page of a study of predictors: the paper's numbers beside ours, and ours under an honest split.

Peng, Thomadakis, Pienaar and Kestor, "LiteForm", HPDC 2025: tables 5 and 6, figures 7, 9 and 10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import FuncFormatter, MultipleLocator, NullFormatter

from spmark.report.analysis.statistics import NOTHING
from spmark.report.claims.published import Published, load_published
from spmark.report.claims.study import RatioRow, Study
from spmark.report.figures.panels import grid, log_ticks
from spmark.report.figures.plot import Form, Plot, render
from spmark.report.figures.style import WIDTH_IN, Look, in_style
from spmark.report.site.files import write_site
from spmark.report.site.model import Report, Section
from spmark.report.tables.table import Table

_TABLES = {"selection": "table5", "partitions": "table6"}
_WHAT = {"selection": "whether CELL is faster", "partitions": "the number of column partitions"}
_COLUMNS = {
    "selection": {
        "accuracy": "accuracy_share", "balanced accuracy": "balanced_accuracy_share", "regret": "regret_share",
        "train_s": "train_s", "infer_s": "infer_s",
    },
    "partitions": {
        "accuracy": "accuracy_share", "balanced accuracy": "balanced_accuracy_share", "similarity": "similarity_score",
        "cosine": "cosine_score", "cosine by matrix": "cosine_by_matrix_score", "train_s": "train_s",
        "infer_s": "infer_s",
    },
}  # fmt: skip
"""Metrics that a table shows, and its columns, whose endings say how numbers are written."""
_RATIOS = [
    "figure", "of", "matrices", "geomean_speedup", "geomean_speedup_low", "geomean_speedup_high", "least_speedup",
    "greatest_speedup",
]  # fmt: skip
_PUBLISHED = Look("#000000", "x")
_CURVES = (Look("#009e73", "o"), Look("#d55e00", "s", "////"))
_POINTS = {True: Look("#d55e00", "o"), False: Look("#009e73", "o")}
_LOW = 0.6


def write_study_page(study: Study, out: Path) -> Path:
    """Draw a study as a site; gives the path of its ``index.html``.

    Raises
    ------
    RecordError
        The paper has no claims, or ``out`` cannot be written.
    """
    published = load_published(study.paper)
    blocks: list[Any] = [render(plot, {Form.NARROW}) for plot in plots(study, published)]
    blocks += [model_table(study, published, task, split) for split in study.splits for task in _TABLES]
    blocks += [ratio_table(study, published)]
    facts = [
        ("Labels", "; ".join(dict.fromkeys(f"{source.gpu}, {source.licence}" for source in study.sources))),
        ("Source", study.sources[0].citation),
        ("Files", ", ".join(source.name for source in study.sources)),
        ("Splits", f"{study.seeds} of each kind"),
        ("Command", study.command),
        ("Packages", ", ".join(f"{name} {version}" for name, version in study.made_with.items())),
    ]
    measured = (
        "Nothing ran on a GPU: models are trained and tested on times that the authors measured and publish. The split "
        "of the public code draws test rows with replacement, and the widths of one matrix may stand on both sides; in "
        "the matrix-disjoint split they do not. Where a range is given it is from the least to the greatest split."
    )
    section = Section("cpu", measured, facts, list(_notices(study)), blocks)
    return write_site(Report(f"spmark: predictors of {study.paper}", [], [section]), out)


def _notices(study: Study) -> Iterator[str]:
    for row in study.scores:
        if row.metric == "failed":
            yield f"{row.model} ({row.task}, {row.split} split) could not be trained: {row.note}"
    for model in study.models:
        if notes := {row.note for row in study.scores if row.model == model and row.note and row.metric != "failed"}:
            yield f"{model}: {'; '.join(sorted(notes))}."
    yield (
        "Precision, recall and F1 of the paper are micro-averaged and thus equal to the accuracy. Regret is how much "
        "longer the chosen formats take than the faster of both. The published labels hold the time of the best number "
        "of partitions only, so that the number of partitions has no regret."
    )


def model_table(study: Study, published: Published, task: str, split: str) -> Table:
    """Give the scores of every model under one split, with the paper's accuracy beside them."""
    theirs = _claims(published, _TABLES[task])
    rows = []
    for model in study.models:
        row = {"model": model, "published_accuracy_share": theirs.get(f"{model}: accuracy", nan) / 100}
        if task == "partitions":
            row["published_cosine_score"] = theirs.get(f"{model}: cosine similarity", nan)
        for metric, column in _COLUMNS[task].items():
            score = study.find(task, split, model, metric)
            row |= (score.interval if score else NOTHING).columns(column)
        rows.append(row)
    note = (
        f"Mean over the splits, with the least and the greatest. ‘majority’ answers with the commonest label. "
        f"The paper's {_TABLES[task].replace('table', 'table ')} stands beside; its split is that of the public code."
    )
    name = f"cpu-{_TABLES[task]}-{split.replace(' ', '-')}"
    return Table(name, f"Predicting {_WHAT[task]}, {split} split", note, pd.DataFrame(rows))


def _claims(published: Published, table: str) -> dict[str, float]:
    """Give the numbers of a published table by ``row: column``."""
    return {
        f"{row}: {column}": float(value)
        for of in published.tables
        if of.id == table
        for row, added in of.rows.items()
        for column, value in zip(of.columns, added["cells"], strict=True)
        if not isinstance(value, str)
    }


def ratio_table(study: Study, published: Published) -> Table:
    """Give the published ratios over all matrices, and over those that the published figure keeps."""
    rows = []
    for ratio in study.ratios:
        ends = (ratio.geomean, nan, nan, min(ratio.ratios), max(ratio.ratios))
        rows.append((ratio.name, "all matrices", len(ratio.ratios), *ends))
        if ratio.selected_geomeans:
            least, mean, greatest = ratio.selected_geomeans
            of = f"those below {_LOW} dropped, 7 of them added back at random, 1,000 draws"
            rows.append((ratio.name, of, ratio.selected, mean, least, greatest, nan, nan))
    frame = pd.DataFrame(rows, columns=_RATIOS)
    title = "Figures 7 and 9 from the published numbers"
    return Table("cpu-published-ratios", title, published.study.ratios, frame)


def plots(study: Study, published: Published) -> list[Callable[[float], Plot]]:
    """List the figures of a study, each as a function of its width."""
    return [
        partial(learning_curves, study, published),
        *(partial(speed_over_rows, ratio, published) for ratio in study.ratios if ratio.name == "figure7"),
    ]


@in_style
def learning_curves(study: Study, published: Published, width_in: float = WIDTH_IN) -> Plot:
    """Draw the accuracy of the random forest over the rows it was trained on (figure 10), with the paper's points."""
    ours = {f"ours, {split} split": look for split, look in zip(study.splits, _CURVES, strict=False)}
    figure, axes = grid(2, {**ours, "published": _PUBLISHED}, "points", width_in, 2.0)
    rows = []
    for ax, task in zip(axes, _TABLES, strict=True):
        for (label, look), split in zip(ours.items(), study.splits, strict=True):
            curve = [
                (task, label, row.train_rows, row.interval.value, row.interval.low, row.interval.high)
                for row in study.curve(task, split, "accuracy")
            ]
            _, _, at, accuracy, low, high = zip(*curve, strict=True) if curve else ((),) * 6
            ax.plot(at, accuracy, color=look.colour, marker=look.marker, zorder=3)
            ax.fill_between(at, low, high, color=look.colour, alpha=0.15, linewidth=0)
            rows += curve
        claimed = _claims(published, f"figure10-{task}").items()
        theirs = {int(name.split()[0]): value for name, value in claimed if name.endswith(": accuracy")}
        ax.plot([*theirs], [*theirs.values()], _PUBLISHED.marker, color=_PUBLISHED.colour, zorder=4)
        rows += [(task, "published", at, value, nan, nan) for at, value in theirs.items()]
        ax.set_title(_WHAT[task], loc="left")
        ax.set(xlabel="rows trained on", ylabel="accuracy", xlim=(0, None))
        ax.yaxis.set_major_locator(MultipleLocator(0.02))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
        ax.grid(axis="both")
    caption = (
        f"Accuracy of the random forest on the test side over the rows that it was trained on, mean over {study.seeds} "
        "splits with the least and the greatest as a band; crosses are the paper's figure 10."
    )
    columns = ["task", "label", "train_rows", "accuracy", "accuracy_low", "accuracy_high"]
    return Plot("cpu-learning-curves", caption, figure, pd.DataFrame(rows, columns=columns))


@in_style
def speed_over_rows(ratio: RatioRow, published: Published, width_in: float = WIDTH_IN) -> Plot:
    """Draw published ratios of speeds (figure 7), one point a matrix, unfiltered."""
    about = published.study
    sizes, speeds = np.array(ratio.num_rows), np.array(ratio.ratios)
    low = speeds < _LOW
    looks = {f"kept in the paper ({(~low).sum():,})": _POINTS[False], f"below {_LOW} ({low.sum()})": _POINTS[True]}
    figure, (ax,) = grid(1, looks, "points", width_in, 2.6)
    for (_, look), part in zip(looks.items(), (~low, low), strict=True):
        ax.plot(sizes[part], speeds[part], look.marker, color=look.colour, markersize=2, alpha=0.6, linestyle="")
    ax.axhline(1, color="#404040", linewidth=0.8)
    ax.axhline(ratio.geomean, color="#404040", linewidth=0.8, linestyle="--")
    ax.set_xscale("log")
    ax.set_yscale("log", base=2)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda ratio, _: f"{ratio:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
    log_ticks(ax.xaxis)
    ax.set(xlabel="rows", ylabel=about.speed)
    ax.grid(axis="y")
    chosen = (
        f" Of those below {_LOW} the paper's plotting script keeps seven at random, so that its mean over "
        f"{ratio.selected:,} matrices is {ratio.selected_geomeans[1]:.3f}."
        if ratio.selected_geomeans
        else ""
    )
    caption = (
        f"Published speed of {about.speed} on a V100, a point for each of {speeds.size:,} SuiteSparse matrices "
        f"with at least 2,000 rows and columns; the dashed line is their geometric mean, {ratio.geomean:.3f}." + chosen
    )
    data = pd.DataFrame({"num_rows": sizes, "speed": speeds, "below": low})
    return Plot(f"cpu-{about.name}", caption, figure, data)
