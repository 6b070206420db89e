"""The page of one matrix's plans: a ranking, and the composition of the first few as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from spmark.impls.core.files import path_component
from spmark.impls.core.problem import Csr
from spmark.impls.core.stores import StoreKind, Stores
from spmark.report.figures.composition import composition, degree_histogram, spy, spy_counts, store_counts
from spmark.report.figures.plot import Drawing, Form, render
from spmark.report.site.model import Report, Section
from spmark.report.site.run_metadata import Facts
from spmark.report.tables.table import Table

MOST_PICTURES = 4
"""Pictures of a page, which stays below a megabyte."""


@dataclass(frozen=True, eq=False)
class Picture:
    """A plan's stores, and where they come from."""

    name: str
    """Of the implementation, or the label of its config."""
    stores: Stores
    about: str
    """What chose the plan, and whether it was measured."""


def composition_report(
    title: str,
    section: Section,
    ranking: pd.DataFrame,
    pictures: Sequence[Picture],
    matrix: Csr,
    *,
    foreseen: bool = False,
) -> Report:
    """Build the page.

    Parameters
    ----------
    title : str
    section : Section
        Device, facts and notices; its blocks follow from the other arguments.
    ranking : DataFrame
        A row for each implementation, the best first; empty where there is nothing to rank.
    pictures : sequence of Picture
        In the order of their worth (`chosen_pictures`).
    matrix : Csr
    foreseen : bool
        The rows are no ranking, since each time is of another cost model.

    Returns
    -------
    Report
        Its blocks all stand on the summary.
    """
    shown, left = chosen_pictures(pictures)
    told = f"Pictures of {', '.join(picture.name for picture in shown)} follow." if shown else "Nothing is drawn."
    if left:
        told += f" Not drawn, for room or since CSR is drawn already: {', '.join(picture.name for picture in left)}."
    named, order = ("Foreseen", "By estimates of different models") if foreseen else ("Ranking", "The best first")
    table = Table("ranking", named, f"{order}; what is not known is empty.", ranking)
    blocks: list[Drawing | Table] = [
        *([table] if len(ranking) else []),
        *(_drawn(picture, matrix) for picture in shown),
    ]
    return Report(title, [], [replace(section, measured=f"{section.measured} {told}".strip(), blocks=blocks)])


def chosen_pictures(pictures: Sequence[Picture]) -> tuple[list[Picture], list[Picture]]:
    """Divide into those that are drawn and the others, both in their order.

    The first `MOST_PICTURES` are drawn. Of those that hold rows of CSR alone, which look alike, the first is.
    """
    shown: list[Picture] = []
    left: list[Picture] = []
    for picture in pictures:
        again = _is_csr(picture) and any(map(_is_csr, shown))
        (left if again or len(shown) == MOST_PICTURES else shown).append(picture)
    return shown, left


def _is_csr(picture: Picture) -> bool:
    return {part.kind for part in picture.stores.parts if part.nnz} == {StoreKind.ROW}


def _drawn(picture: Picture, matrix: Csr) -> Drawing:
    counts = store_counts(matrix, picture.stores)
    drawing = render(
        lambda width_in: composition(picture.name, picture.stores, counts, matrix.shape, width_in), {Form.NARROW}
    )
    name = path_component(f"composition-{picture.name}")
    return replace(drawing, name=name, caption=f"{drawing.caption} {picture.about}")


def matrix_report(name: str, facts: Facts, matrix: Csr) -> Report:
    """Build the page of one matrix.

    Parameters
    ----------
    name : str
        Its id.
    facts : list of (str, str)
        Names and values of facts, in order.
    matrix : Csr
    """
    counts = spy_counts(matrix.shape, matrix.indptr, matrix.indices)
    lengths = matrix.row_lengths, np.bincount(matrix.indices, minlength=matrix.num_cols)
    blocks = [
        render(lambda width_in: spy(counts, matrix.shape, width_in=width_in), {Form.NARROW}),
        render(lambda width_in: degree_histogram(*lengths, width_in=width_in), {Form.NARROW}),
    ]
    return Report(name, [], [Section(name, "Statistics of the pattern as it is loaded.", facts, [], [*blocks])])
