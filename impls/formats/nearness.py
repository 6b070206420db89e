"""An order of rows in which those that share columns stand together, so that their rows of B meet in a cache.

Communities by label propagation (Raghavan, Albert and Kumara, "Near linear time algorithm to detect community
structures in large-scale networks", Physical Review E, 2007) in the order of reverse Cuthill-McKee.
"""

from __future__ import annotations

from importlib import import_module

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee

from spmark.impls.core.problem import Csr

_SWEEPS = 4


def near_positions(matrix: Csr) -> NDArray[np.int32]:
    """Give each row its place in the order.

    Parameters
    ----------
    matrix : Csr
        Square: row i and column i are one vertex of a graph.

    Returns
    -------
    (I,) int32
        A permutation: rows of one community are neighbours, communities stand where reverse Cuthill-McKee has them on
        average, and rows keep its order within. O((I + nnz) sweeps), one core.

    Raises
    ------
    ValueError
        The matrix is not square.
    """
    if matrix.num_rows != matrix.num_cols:
        raise ValueError(f"expected a square matrix, found {matrix.num_rows} x {matrix.num_cols}")
    ones = np.ones(matrix.nnz, np.int8)
    graph = sparse.csr_array((ones, matrix.indices, matrix.indptr), shape=matrix.shape)
    graph = (graph + graph.T).tocsr()
    indptr, indices = graph.indptr.astype(np.int32, copy=False), graph.indices.astype(np.int32, copy=False)

    places = np.empty(matrix.num_rows, np.int32)
    places[reverse_cuthill_mckee(graph, symmetric_mode=True)] = np.arange(matrix.num_rows, dtype=np.int32)
    labels = np.arange(matrix.num_rows, dtype=np.int32)
    import_module("spmark.impls.formats.loops").propagate_labels(
        indptr, indices, labels, np.zeros_like(labels), _SWEEPS
    )
    members = np.bincount(labels, minlength=labels.size)
    means = np.bincount(labels, places, minlength=labels.size) / np.maximum(members, 1)

    found = np.empty_like(places)
    found[np.lexsort((places, labels, means[labels]))] = np.arange(matrix.num_rows, dtype=np.int32)
    return found
