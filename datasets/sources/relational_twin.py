"""Seeded stand-ins for knowledge graphs that have to be downloaded.

A twin has the real graph's nodes, edges and relations. Its records say `twin`: it shows how a system scales to such a
graph, not its speed on the real one. `docs/notes/twins.md` holds twins against what is published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from spmark.datasets.cache import Cache
from spmark.datasets.source import Args, RawMatrix, argument, known, only
from spmark.datasets.sources.relational import Edges, RelationalSource, wide
from spmark.records.schema import MatrixKind


@dataclass(frozen=True)
class Described:
    """A graph of things that are described: half of the nodes are objects, the others values.

    Of the relations, with sizes in proportion to 1 / rank, every other one leads to a vocabulary whose first words are
    frequent, the others to values of their own; each has an inverse. Repeated edges are merged, so that some are
    missing. All of this is our choice.
    """

    nodes: int
    edges: int
    relations: int
    """Without their inverses."""

    def draw(self, seed: int) -> Edges:
        """Draw relation, row and column of each edge. O(edges) time."""
        bits = np.random.PCG64([seed, self.edges])
        objects, edges = self.nodes // 2, self.edges // 2
        values = self.nodes - objects
        # Whole numbers throughout, so that every machine draws the same graph.
        sizes = _shared(edges, self.relations)
        relation, rows, cols = [], [], []
        for r, size in enumerate(sizes.tolist()):
            first, several, start = (int(word) for word in bits.random_raw(3) >> np.uint64(33))
            place = np.arange(size)
            subject = (first + place // (1 + several % 3)) % objects
            words = bits.random_raw(size) >> np.uint64(48)
            if r % 2:
                vocabulary = 8 * isqrt(size)
                told = ((words * words >> np.uint64(16)) * words >> np.uint64(16)) * np.uint64(vocabulary)
                value = (told >> np.uint64(16)).astype(np.int64)
            else:
                value = place + place // objects
            other = objects + (start + value) % values
            relation += [np.full(size, 2 * r), np.full(size, 2 * r + 1)]
            rows += [other, subject]
            cols += [subject, other]
        return np.concatenate(relation), np.concatenate(rows), np.concatenate(cols)


@dataclass(frozen=True)
class Typed:
    """A graph of nodes of some types, and relations between two types, or among the nodes of one in both directions.

    Relations between the same two types have sizes in proportion to 1 / rank, and each of them reaches
    3 sqrt(edges) nodes of a type at most. Ends are drawn with a density of 1 / sqrt(place) by places that a type deals
    to its nodes at random, so that some nodes have many edges in all relations. A repeated edge is drawn again. The
    sizes of types are published, all else is our choice.
    """

    sizes: tuple[int, ...]
    """Nodes of each type."""
    between: Mapping[tuple[int, int], tuple[int, int]]
    """Number of relations and of edges between two types."""

    def draw(self, seed: int) -> Edges:
        """Draw relation, row and column of each edge. O(edges log edges) time."""
        bits = np.random.PCG64([seed, sum(self.sizes)])
        starts = list(accumulate(self.sizes, initial=0))
        nodes = [start + np.argsort(bits.random_raw(end - start), kind="stable") for start, end in pairwise(starts)]
        parts: list[Edges] = []
        for (head, tail), (relations, edges) in self.between.items():
            for size in _shared(edges, relations).tolist():
                reached = 3 * isqrt(size) if relations > 1 else max(self.sizes)
                places = min(reached, self.sizes[head]), min(reached, self.sizes[tail])
                pairs = _pairs(bits, places, size, mirrored=head == tail)
                parts.append((np.full(size, len(parts)), nodes[tail][pairs[1]], nodes[head][pairs[0]]))
        relation, rows, cols = zip(*parts, strict=True)
        return np.concatenate(relation), np.concatenate(rows), np.concatenate(cols)


def _shared(edges: int, relations: int) -> NDArray[np.int64]:
    """Give sizes in proportion to 1 / rank; the first takes what rounding leaves."""
    shares = (1 << 20) // np.arange(1, relations + 1)
    sizes: NDArray[np.int64] = edges * shares // shares.sum()
    sizes[0] += edges - sizes.sum()
    return sizes


def _pairs(bits: np.random.PCG64, sizes: tuple[int, int], count: int, *, mirrored: bool) -> NDArray[np.int64]:
    """Draw (2, count) different pairs of places; mirrored ones have each pair in both directions, an odd one a loop."""
    drawn = np.empty(0, np.int64)
    wanted = count // 2 if mirrored else count
    while drawn.size < wanted:
        words = bits.random_raw(2 * (wanted - drawn.size)).reshape(2, -1) >> np.uint64(32)
        ends = (words * words >> np.uint64(32)) * np.array(sizes, np.uint64)[:, None] >> np.uint64(32)
        first, second = ends.astype(np.int64)
        if mirrored:
            first, second = (end[first != second] for end in (np.minimum(first, second), np.maximum(first, second)))
        drawn = np.unique(np.concatenate([drawn, first * sizes[1] + second]))
    pairs: NDArray[np.int64] = np.stack(np.divmod(drawn, sizes[1]))
    if mirrored:
        pairs = np.concatenate([pairs, pairs[::-1], np.zeros((2, count % 2), np.int64)], axis=1)
    return pairs


_DISEASE, _DRUG, _FUNCTION, _PROTEIN, _SIDE_EFFECT = range(5)
TWINS: Mapping[str, Described | Typed] = {
    "am": Described(1_885_136, 5_668_682, 48),
    "bgs": Described(94_806, 672_884, 48),
    # 51 relations between 5 types: Hu et al., section 5. Among drugs half of all edges, among proteins a quarter.
    "biokg": Typed(
        (10_687, 10_533, 45_085, 17_499, 9_969),
        {
            (_DRUG, _DRUG): (38, 2_381_338),
            (_PROTEIN, _PROTEIN): (8, 1_190_670),
            (_PROTEIN, _FUNCTION): (1, 750_000),
            (_DRUG, _SIDE_EFFECT): (1, 160_000),
            (_FUNCTION, _FUNCTION): (1, 130_670),
            (_DRUG, _PROTEIN): (1, 100_000),
            (_DISEASE, _PROTEIN): (1, 50_000),
        },
    ),
}


class RelationalTwin(RelationalSource):
    """Stand-ins for AM (a museum's collection), BGS (rocks) and ogbl-biokg (medicine); ``seed`` (0) draws another.

    Nodes, edges and relations are those of SparseTIR's table 2.
    """

    name = "relational_twin"
    title = "twins of large graphs of several relations"
    citation = (
        "counts: Ye et al., SparseTIR, ASPLOS 2023, table 2; graphs: de Boer et al., Semantic Web 2012 (AM); Ristoski "
        "et al., ISWC 2016 (BGS); Hu et al., Open Graph Benchmark, NeurIPS 2020 (ogbl-biokg)"
    )
    cached = True

    def names(self, cache: Cache) -> Sequence[str]:
        """List the twins."""
        return tuple(TWINS)

    def load(self, name: str, args: Args, cache: Cache) -> RawMatrix:
        """Draw a graph. O(edges log edges) time."""
        where = f"{self.name}/{name}"
        law = TWINS[known(self.name, name, TWINS)]
        only(where, args, "seed")
        edges = law.draw(argument(where, args, "seed", 0, (0, 2**31 - 1)))
        nodes = law.nodes if isinstance(law, Described) else sum(law.sizes)
        relations = 2 * law.relations if isinstance(law, Described) else sum(n for n, _ in law.between.values())
        return wide(nodes, relations, edges, where, MatrixKind.TWIN)
