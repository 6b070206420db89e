"""Recursive-matrix (R-MAT) random graphs with skewed degrees.

Chakrabarti, Zhan and Faloutsos, R-MAT: a recursive model for graph mining, SDM 2004.
"""

from __future__ import annotations

import numpy as np

from spmark.datasets.cache import Cache
from spmark.datasets.source import Args, RawMatrix, Source, argument, csr_from_edges, only
from spmark.impls.core.errors import DatasetError
from spmark.records.schema import MatrixKind

_MOST_EDGES = 1 << 28


class Rmat(Source):
    """Graphs of 2^scale rows from edge_factor 2^scale drawn edges, repeated edges merged; the name is a label.

    Arguments: ``scale`` (default 16), ``edge_factor`` (16), the quadrants' probabilities ``a b c d`` (0.57, 0.19,
    0.19, 0.05, Graph500's; they sum to 1), ``seed`` (0). Vertices are not shuffled: the heavy rows come first.
    """

    name = "rmat"
    title = "R-MAT random graphs"
    citation = "Chakrabarti, Zhan and Faloutsos, R-MAT: a recursive model for graph mining, SDM 2004"

    def load(self, name: str, args: Args, cache: Cache) -> RawMatrix:
        """Draw a graph: one random word for each edge and level. O(edges scale) time."""
        where = f"rmat/{name}"
        only(where, args, "scale", "edge_factor", "a", "b", "c", "d", "seed")
        scale = argument(where, args, "scale", 16, (1, 27))
        edges = argument(where, args, "edge_factor", 16, (1, 1 << 20)) << scale
        shares = [
            argument(where, args, key, value, (0.0, 1.0))
            for key, value in zip("abcd", (0.57, 0.19, 0.19, 0.05), strict=True)
        ]
        seed = argument(where, args, "seed", 0, (0, 2**31 - 1))
        if abs(sum(shares) - 1) > 1e-9:
            raise DatasetError(f"{where}: expected a + b + c + d to be 1, found {sum(shares)}")
        if edges > _MOST_EDGES:
            raise DatasetError(f"{where}: expected at most 2^28 edges, found {edges:,}")
        # Thresholds on 32-bit words: whole-number comparisons give the same graph everywhere.
        bounds = np.array(np.cumsum(shares)[:3] * 2**32, np.uint64)
        bits = np.random.PCG64([seed, scale, edges])
        rows, cols = np.zeros(edges, np.int64), np.zeros(edges, np.int64)
        for _ in range(scale):
            word = bits.random_raw(edges) >> np.uint64(32)
            quadrant = np.searchsorted(bounds, word, side="right")
            rows <<= 1
            rows |= quadrant >> 1
            cols <<= 1
            cols |= quadrant & 1
        size = 1 << scale
        return csr_from_edges((size, size), rows, cols, None, MatrixKind.SYNTHETIC, merge=True, where=where)
