"""The page of one matrix: its facts, its spy plot and the lengths of its rows and columns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spmark.report.figures.composition import degree_histogram, spy
from spmark.report.figures.plot import Form, render
from spmark.report.site.model import Report, Section
from spmark.report.site.run_metadata import Facts


def matrix_report(
    name: str,
    facts: Facts,
    shape: tuple[int, int],
    counts: NDArray[np.int64],
    lengths: tuple[NDArray[np.integer], NDArray[np.integer]],
) -> Report:
    """Build the page of one matrix.

    Parameters
    ----------
    name : str
        Its id.
    facts : list of (str, str)
        Names and values of facts, in order.
    shape : tuple of int
        (I, K).
    counts : (r, c) int64
        As `spmark.report.figures.composition.spy_counts` gives them.
    lengths : pair of arrays
        Non-zeros of each row and of each column.
    """
    blocks = [
        render(lambda width_in: spy(counts, shape, width_in=width_in), {Form.NARROW}),
        render(lambda width_in: degree_histogram(*lengths, width_in=width_in), {Form.NARROW}),
    ]
    return Report(name, [], [Section(name, "Statistics of the pattern as it is loaded.", facts, [], [*blocks])])
