"""Groups on an axis of matrices: single matrices, and pools of all layers of one source and sparsity.

Ids of pruned layers end in their sparsity (``dnn_layers/bert_768x768@0.9``) and, where they were pruned in a way of
their own, in words for this way (``@0.93_half_empty``), or they are those of DLMC
(``mirror/rn50__mag__0.9__final_dense``). A sweep of many layers is read by sparsity, as the papers draw it, and not
layer by layer.
"""

from __future__ import annotations

import re
from math import inf

import pandas as pd

from spmark.report.analysis.cases import PROBLEM

ALL = "all"
"""First word of the groups that stand for several matrices."""
_OPS = ("spmm", "sddmm", "sddmm-scaled", "spmm-scaled")
MOST_GROUPS = 16
"""Matrices up to which each has a place of its own."""
MOST_POOLED = 22
"""Places up to which matrices and pooled layers are drawn side by side."""
_LAYER = re.compile(r"^(?P<source>[^/]+)/.*@(?P<sparsity>\d*\.?\d+)(?P<way>(?:_[a-z]+)*)(?: #\w+)?$")
_DLMC = re.compile(r"^[^/]+/(?:rn50|tf)__[^_]+__(?P<sparsity>\d*\.\d+)__")


def group_of(matrix: str) -> str:
    """Name the pool of a layer, ``source 90 %`` or ``dlmc 90 %``; any other matrix is a group of its own.

    Words for the way that a layer was pruned stand behind its source, so that layers of two ways are never pooled.
    """
    if layer := _LAYER.match(matrix):
        return f"{layer['source']}{layer['way'].replace('_', ' ')} {100 * float(layer['sparsity']):g} %"
    layer = _DLMC.match(matrix)
    return f"dlmc {100 * float(layer['sparsity']):g} %" if layer else matrix


def groups_of(frame: pd.DataFrame) -> tuple[pd.Series[str], list[str]]:
    """Give the group of every row, and the groups in the order drawn.

    Parameters
    ----------
    frame : DataFrame
        With ``matrix`` and ``nnz``.

    Returns
    -------
    groups : Series of str
        The matrix itself where there are at most `MOST_GROUPS`; else layers are pooled.
    order : list of str
        Matrices by size, then pools by source and sparsity.
    """
    matrices = by_size(frame)
    if len(matrices) <= MOST_GROUPS:
        return frame["matrix"].astype(str), matrices
    names = {matrix: group_of(matrix) for matrix in matrices}
    single = [matrix for matrix in matrices if names[matrix] == matrix]
    pools = sorted({name for name in names.values() if name not in names}, key=source_and_sparsity)
    return frame["matrix"].map(names), [*single, *pools]


def source_and_sparsity(pool: str) -> tuple[str, float]:
    """Give what the pools of `group_of` are ordered by."""
    source, sparsity, _ = pool.rsplit(" ", 2)
    return source, float(sparsity)


def panels_of(frame: pd.DataFrame) -> list[tuple[tuple[str, str], pd.DataFrame]]:
    """Split a frame by op and dtype, in the order of panels."""
    panels = [((str(op), str(dtype)), part) for (op, dtype), part in frame.groupby(["op", "dtype"])]
    return sorted(panels, key=lambda panel: (_OPS.index(panel[0][0]), -int(panel[0][1].removeprefix("float"))))


def rivals_of(derived: pd.DataFrame) -> pd.DataFrame:
    """Give the rows that are not the baseline's own."""
    return derived[~derived["is_baseline"]]


def beside_baseline(rivals: pd.DataFrame, baseline: str, column: str) -> pd.DataFrame:
    """Give the rows that have a ratio to the baseline, and the baseline's own, whose ratio is 1."""
    known = rivals[rivals[column].notna()]
    own = known.drop_duplicates(list(PROBLEM)).assign(label=baseline, **{column: 1.0})
    return pd.concat([known, own], ignore_index=True)


def by_size(frame: pd.DataFrame) -> list[str]:
    """Give the matrices from few to many non-zeros."""
    sizes = frame.groupby("matrix")["nnz"].max().fillna(inf)
    return sorted((str(matrix) for matrix in sizes.index), key=lambda matrix: (float(sizes[matrix]), matrix))


def in_panel_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Order the rows of a plot's data by op and dtype as its panels are; rows of one panel keep their order."""
    return pd.concat([part for _, part in panels_of(frame)], ignore_index=True) if len(frame) else frame
