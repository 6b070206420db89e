"""The figure of matrices that one rule makes: time over the number that varies most, a panel for each of the rest.

Ids such as ``few_columns_2048_nnz4096_nnc64`` differ in their numbers only. The number with the most values is the
axis, any other that varies tells panels apart. After figures 4, 6 and 9 of Lin et al., "LO-SpMM", ACM TACO 2024.
"""

from __future__ import annotations

import re

import pandas as pd

from spmark.records.schema import MatrixKind
from spmark.report.analysis.cases import in_panel_order, panels_of
from spmark.report.figures.findings import leading, said_seconds
from spmark.report.figures.panels import grid, lines, log_ticks, panel_room_in, value_ticks, wrapped
from spmark.report.figures.plot import Plot, looks_of, not_drawn
from spmark.report.figures.style import WIDTH_IN, in_style

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_FEWEST = 3
_MOST_PANELS = 12
_FAR_APART = 4.0
_KEYS = ["op", "dtype", "width", "series"]


def series_of(derived: pd.DataFrame) -> pd.DataFrame:
    """Give the timed cases of synthetic matrices whose names differ in numbers only.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it.

    Returns
    -------
    DataFrame
        ``op, dtype, width, series, axis, at, matrix, label, implementation, median_us, median_us_low, median_us_high,
        speedup``.

        ``series`` is the name with ``*`` for the number that varies most (the later of two that vary as much), ``axis``
        the word before this number, ``at`` its value. Series of fewer than three values are left out, and all series
        where there are too many to draw.
    """
    rows = derived[derived["median_us"].notna() & (derived["matrix_kind"] == MatrixKind.SYNTHETIC.value)]
    places = pd.DataFrame(_places(sorted(rows["matrix"].unique())), columns=["matrix", "series", "axis", "at"])
    columns = [*_KEYS, "axis", "at", "matrix", "label", "implementation", "median_us", "median_us_low"]
    data = rows.merge(places, on="matrix")[[*columns, "median_us_high", "speedup"]]
    values = data.groupby(_KEYS)["at"].transform("nunique") if len(data) else data["at"]
    data = data[values >= _FEWEST]
    if data.groupby(_KEYS).ngroups > _MOST_PANELS:
        return data.iloc[:0]
    return in_panel_order(data.sort_values([*_KEYS, "label", "at"], kind="stable"))


def _places(matrices: list[str]) -> list[tuple[str, str, str, float]]:
    templates: dict[str, list[tuple[str, list[str]]]] = {}
    for matrix in matrices:
        templates.setdefault(_NUMBER.sub("*", matrix), []).append((matrix, _NUMBER.findall(matrix)))
    places = []
    for same in templates.values():
        counts = [len({numbers[i] for _, numbers in same}) for i in range(len(same[0][1]))]
        if max(counts, default=0) < _FEWEST:
            continue
        varies = max(i for i, count in enumerate(counts) if count == max(counts))
        for matrix, numbers in same:
            start = list(_NUMBER.finditer(matrix))[varies]
            series = matrix[: start.start()] + "*" + matrix[start.end() :]
            word = re.findall(r"[a-z]+|@", matrix[: start.start()], re.IGNORECASE)
            axis = "sparsity" if word[-1:] == ["@"] else (word[-1] if word else "number")
            places.append((matrix, series, axis, float(numbers[varies])))
    return places


@in_style
def time_over_series(derived: pd.DataFrame, width_in: float = WIDTH_IN) -> Plot:
    """Draw the median time of every label over the number that varies.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it; `series_of` of it must not be empty.
    width_in : float
        Width of the figure in inches.
    """
    data = series_of(derived)
    seconds = data.assign(seconds=data["median_us"] * 1e-6)
    finding = leading(seconds, "seconds", "is fastest", said_seconds, less=True, case=("matrix", "width"))
    looks = looks_of(data, derived, finding.labels)
    cells = list(data[data["label"].isin(looks)].groupby(_KEYS, sort=False))
    several = len(panels_of(data)) > 1
    figure, axes = grid(len(cells), looks, "lines", width_in, 1.9)
    room_in = panel_room_in(width_in)
    for ax, ((op, dtype, width, name), part) in zip(axes, cells, strict=True):
        title = f"{str(name).split('/', 1)[-1]}, J = {width}" + (f", {op}, {dtype}" if several else "")
        ax.set_title(wrapped(title, room_in), loc="left", fontsize=8)
        lines(ax, part, "at", "median_us", looks)
        at = sorted(part["at"].unique())
        logarithmic = at[0] > 0 and at[-1] / at[0] >= 8
        if logarithmic:
            ax.set_xscale("log", base=2)
        value_ticks(ax.xaxis, at, room_in, log=logarithmic)
        low, high = part["median_us"].min(), part["median_us"].max()
        ax.set(ylim=(0, high * 1.12), xlabel=part["axis"].iloc[0], ylabel="one run (µs)")
        if high / low > _FAR_APART:
            ax.set(yscale="log", ylim=(low / 1.4, high * 1.4))
            log_ticks(ax.yaxis)
        ax.grid(axis="y")
    caption = (
        "Median time of one run, with its 95 % interval, over the number in the matrix's name that varies (*)"
        f"{not_drawn(data, looks)}."
    )
    heading = "Time of one run over the number that varies"
    return Plot("time-over-series", caption, figure, data, heading, finding.text)
