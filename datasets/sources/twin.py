"""Seeded stand-ins for ogbn-proteins, ogbn-products and reddit, which need a network and are too large to ship.

A twin has exactly the real graph's rows and non-zeros, heavy-tailed degrees with the real mean and a stated maximum,
and communities. Its records say `twin`: a twin shows how a system scales to such a graph, not its speed on the real
one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.datasets.cache import Cache
from spmark.datasets.source import Args, Facts, RawMatrix, Source, argument, known, only
from spmark.impls.core.problem import offsets
from spmark.records.schema import MatrixKind


@dataclass(frozen=True)
class Law:
    """How a twin is drawn."""

    num_rows: int
    nnz: int
    longest_row: int
    """Entries of the longest row."""
    communities: int
    contiguous: bool
    """Whether members of a community have neighbouring numbers or scattered ones."""
    inside: float
    """Share of a row's entries in columns of its own community."""


TWINS = {
    # Rows and non-zeros: STile, table 4 (every edge in one direction). Eight species, numbered one after the other:
    # Hu et al., NeurIPS 2020. The rest, the longest row included, is our choice.
    "proteins_twin": Law(132_534, 39_561_252, 7_750, 8, True, 0.95),
    # Rows and non-zeros: STile, table 4. 41 subreddits: Hamilton et al., NeurIPS 2017. The rest is our choice.
    "reddit_twin": Law(232_965, 114_615_892, 21_657, 41, False, 0.75),
    # Rows and non-zeros: OGB (every edge in one direction). 47 categories: Hu et al. The rest is our choice.
    "products_twin": Law(2_449_029, 61_859_140, 17_481, 47, False, 0.75),
}


class Twin(Source):
    """Stand-ins for graphs that cannot be shipped; another ``seed`` (default 0) draws another.

    Row lengths are the quantiles of a log-normal law, dealt to the rows at random. The mean of the law is nnz / rows,
    and its top quantile is the stated longest row. A row draws the share ``inside`` of its columns from its community
    and the rest from all columns, in proportion to the length of the column's own row: columns are heavy-tailed as
    well. A repeated column is drawn again.
    """

    name = "twin"
    title = "twins of large graphs"
    citation = (
        "counts: STile, table 4, and OGB; graphs: Hu et al., Open Graph Benchmark, NeurIPS 2020 (proteins, products); "
        "Hamilton et al., Inductive representation learning on large graphs, NeurIPS 2017 (reddit)"
    )
    cached = True

    def names(self, cache: Cache) -> Sequence[str]:
        """List the twins."""
        return tuple(TWINS)

    def facts(self, name: str) -> Facts | None:
        """Give the counts of the twin and of the real graph."""
        law = TWINS.get(name)
        return Facts(law.num_rows, law.num_rows, law.nnz) if law else None

    def load(self, name: str, args: Args, cache: Cache) -> RawMatrix:
        """Draw a twin."""
        law = TWINS[known("twin", name, TWINS)]
        only(f"twin/{name}", args, "seed")
        return draw(law, argument(f"twin/{name}", args, "seed", 0, (0, 2**31 - 1)))


def draw(law: Law, seed: int) -> RawMatrix:
    """Draw a graph by a law. O(nnz + rows^2 / 4096) time, O(rows) memory beside the CSR.

    Every row is drawn into a bit set of its columns, which is read off in order: this needs no sort and gives exactly
    the wanted number of entries.
    """
    from spmark.datasets.sources.twin_rows import AliasTable, draw_rows

    bits = np.random.PCG64(seed)
    lengths = row_lengths(law)[np.argsort(bits.random_raw(law.num_rows), kind="stable")]
    members = np.arange(law.num_rows, dtype=np.int32)
    if not law.contiguous:
        members = np.argsort(bits.random_raw(law.num_rows), kind="stable").astype(np.int32)
    # Sizes of communities fall like 1 / sqrt(rank).
    shares = 1 / np.sqrt(np.arange(1, law.communities + 1))
    starts = np.concatenate([[0], np.rint(np.cumsum(shares / shares.sum()) * law.num_rows)]).astype(np.int64)
    community = np.empty(law.num_rows, np.int32)
    community[members] = np.repeat(np.arange(law.communities, dtype=np.int32), np.diff(starts))
    indptr = offsets(lengths, np.int32)
    indices = np.empty(law.nnz, np.int32)
    everyone = AliasTable(*_alias_table(lengths))
    local = [_alias_table(lengths[members[a:b]]) for a, b in pairwise(starts)]
    own = AliasTable(np.concatenate([keep for keep, _ in local]), np.concatenate([alias for _, alias in local]))
    draw_rows(indptr, indices, members, starts, community, everyone, own, law.inside, np.uint64(seed))
    return RawMatrix((law.num_rows, law.num_rows), indptr, indices, None, MatrixKind.TWIN)


def row_lengths(law: Law) -> NDArray[np.int64]:
    """Give (rows,) int64 row lengths, rising, with the sum nnz and the longest row at the end."""
    from scipy.special import ndtri

    mean = law.nnz / law.num_rows
    top = NormalDist().inv_cdf(1 - 0.5 / law.num_rows)
    # The mean of the law is exp(m + s^2 / 2) and its top quantile exp(m + s top): s solves both.
    spread = top - float(np.sqrt(max(top**2 - 2 * np.log(law.longest_row / mean), 0.0)))
    middle = np.log(mean) - spread**2 / 2
    normal = ndtri((np.arange(law.num_rows) + 0.5) / law.num_rows)
    lengths: NDArray[np.int64] = np.rint(np.exp(middle + spread * normal)).astype(np.int64)
    np.clip(lengths, 1, law.longest_row, out=lengths)
    lengths[-1] = law.longest_row
    # Rounding leaves a small rest, which is spread evenly over the rows with room, except the longest.
    while rest := law.nnz - int(lengths.sum()):
        step = 1 if rest > 0 else -1
        room = np.flatnonzero(lengths[:-1] < law.longest_row if rest > 0 else lengths[:-1] > 1)
        chosen = room[np.linspace(0, room.size - 1, min(abs(rest), room.size)).astype(np.int64)]
        lengths[np.unique(chosen)] += step
    return lengths


def _alias_table(weights: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Give Walker's alias table (Vose, IEEE Trans. Softw. Eng. 1991): draws in proportion to weights in O(1)."""
    keep = (weights * (weights.size / weights.sum())).tolist()
    alias = list(range(len(keep)))
    small = [item for item, weight in enumerate(keep) if weight < 1]
    large = [item for item, weight in enumerate(keep) if weight >= 1]
    while small and large:
        less, more = small.pop(), large[-1]
        alias[less] = more
        keep[more] -= 1.0 - keep[less]
        if keep[more] < 1:
            small.append(large.pop())
    for item in small + large:
        keep[item] = 1.0
    return np.array(keep), np.array(alias, np.int32)
