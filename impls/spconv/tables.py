"""The tables of a kernel map that spconv's functions read: neighbours with sorted masks, or pairs by offset.

A relation of the map is an offset of the kernel, and each output has at most one input per offset. Yan, Mao and Li,
"SECOND: Sparsely Embedded Convolutional Detection", Sensors 2018, section 3.1.3 (the pairs).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import numbered
from spmark.impls.core.relational import RelationalCsr


def is_submanifold(matrix: RelationalCsr) -> bool:
    """Say whether a map has the form that the package's submanifold layers rely on.

    Outputs are inputs, the middle offset joins each to itself, and opposite offsets have as many pairs.
    """
    relation, rows, cols = matrix.edges
    middle, counts = relation == matrix.relations // 2, np.bincount(relation, minlength=matrix.relations)
    return (
        matrix.relations % 2 == 1
        and matrix.num_rows == matrix.num_cols == counts[matrix.relations // 2]
        and np.array_equal(rows[middle], cols[middle])
        and np.array_equal(counts, counts[::-1])
    )


def neighbours(matrix: RelationalCsr) -> NDArray[np.int32]:
    """Give the input of each offset and output, or -1: (R, I) int32."""
    relation, rows, cols = matrix.edges
    table = np.full((matrix.relations, matrix.num_rows), -1, np.int32)
    table[relation, rows] = cols
    return table


def parts_of_offsets(relations: int, parts: int) -> list[int]:
    """Give the bits of the offsets of each part, as the package cuts them: all, or the larger half first."""
    cuts = [0, relations] if parts == 1 else [0, relations - relations // 2, relations]
    return [(1 << end) - (1 << begin) for begin, end in pairwise(cuts)]


def sorted_masks(matrix: RelationalCsr, part: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Give the bits of the offsets that each output has, of those in ``part``, rising, and whose they are.

    (I, 1) int32, whose bits are those of an unsigned number, and (I,) int32 outputs. O(nnz + I log I) time.
    """
    relation, rows, _ = matrix.edges
    masks = np.bincount(rows, 2.0**relation, matrix.num_rows).astype(np.uint32) & np.uint32(part)
    order = np.argsort(masks, kind="stable").astype(np.int32)
    return masks[order].view(np.int32)[:, None], order


def pairs(matrix: RelationalCsr) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Give inputs and outputs of the pairs of each offset, padded by -1, and how many each has.

    (2, R, longest) and (R,) int32.
    """
    order, bounds = matrix.by_relation
    relation, rows, cols = (each[order] for each in matrix.edges)
    counts = np.diff(bounds)
    table = np.full((2, matrix.relations, counts.max()), -1, np.int32)
    table[:, relation, numbered(counts)[1]] = np.stack([cols, rows])
    return table, counts
