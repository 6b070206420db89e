"""Matrices of several relations: knowledge graphs, maps of sparse convolutions, and stand-ins for larger graphs.

Each is the wide CSR of a `spmark.impls.core.relational.RelationalCsr` of square matrices, so that columns over rows is
the number of relations. `spmark.datasets.relational.load_relational` gives it as one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from math import isqrt
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spmark.datasets.cache import Cache
from spmark.datasets.source import Args, Facts, RawMatrix, Source, argument, check_bytes, check_shape, known, only
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.problem import openings
from spmark.impls.core.relational import RelationalCsr
from spmark.impls.core.untrusted import reading
from spmark.records.schema import MatrixKind

Edges = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]


class RelationalSource(Source):
    """A source whose matrices are those of several relations, as many as there are times more columns than rows."""


class Listed(NamedTuple):
    """A matrix of the mirror, and where its edges come from."""

    rows: int
    relations: int
    nnz: int
    url: str


class MirroredEdges(RelationalSource):
    """Edges in npz files of the local mirror, ``<source>/<name>.npz``."""

    licence = "per matrix, in the mirror's MANIFEST.tsv"
    listed: ClassVar[Mapping[str, Listed]]

    def names(self, cache: Cache) -> Sequence[str]:
        """List the matrices."""
        return tuple(self.listed)

    def facts(self, name: str) -> Facts | None:
        """Give the counts of a matrix."""
        one = self.listed.get(name)
        return None if one is None else Facts(one.rows, one.rows * one.relations, one.nnz)

    def load(self, name: str, args: Args, cache: Cache) -> RawMatrix:
        """Read a file of the mirror. Takes no arguments."""
        where = f"{self.name}/{name}"
        only(where, args)
        one = self.listed[known(self.name, name, self.listed)]
        path = None if cache.mirror is None else cache.mirror / self.name / f"{name}.npz"
        if path is None or not path.is_file():
            raise DatasetError(
                f"{where}: expected SPMARK_MIRROR to name a folder with {self.name}/{name}.npz, found none; "
                f"its edges come from {one.url}"
            )
        with reading(path, "an npz file with edges of several relations"), np.load(path, allow_pickle=False) as file:
            check_bytes(str(path), "its arrays", sum(info.file_size for info in file.zip.infolist()))
            edges = self.edges(file)
        return wide(one.rows, one.relations, edges, path)

    @abstractmethod
    def edges(self, file: Mapping[str, NDArray[Any]]) -> Edges:
        """Give relation, row and column of each edge."""


class Hetero(MirroredEdges):
    """Knowledge graphs: an edge of relation r from subject j to object i is A_r[i, j].

    Stored values are those of a relational graph network: 1 over the edges of the same relation and object. AIFB and
    MUTAG are without the relations that tell labels; all have edges in one direction.
    """

    name = "hetero"
    title = "knowledge graphs"
    citation = (
        "Schlichtkrull, Kipf, Bloem, van den Berg, Titov and Welling, Modeling relational data with graph "
        "convolutional networks, ESWC 2018; Toutanova and Chen, CVSC 2015 (FB15k-237); Dettmers et al., AAAI 2018 "
        "(WN18RR)"
    )
    listed = {
        "aifb": Listed(8285, 45, 29043, "https://github.com/alexanderdesouza/latent-GCN (data/aifb)"),
        "mutag": Listed(23644, 23, 74227, "https://github.com/alexanderdesouza/latent-GCN (data/mutag)"),
        "fb15k237": Listed(14541, 237, 272115, "https://github.com/thunlp/OpenKE (benchmarks/FB15K237)"),
        "wn18rr": Listed(40559, 11, 86835, "https://github.com/pbloem/gated-rgcn (data/wn18rr)"),
    }

    def edges(self, file: Mapping[str, NDArray[Any]]) -> Edges:
        """Read ``rel``, ``dst`` and ``src``."""
        return file["rel"], file["dst"], file["src"]


class PointCloud(MirroredEdges):
    """Maps of 3 x 3 x 3 submanifold convolutions of MinkUNet on SemanticKITTI: a relation for each offset, values 1."""

    name = "pointcloud"
    title = "maps of sparse convolutions"
    citation = (
        "Choy, Gwak and Savarese, 4D spatio-temporal ConvNets, CVPR 2019; Behley et al., SemanticKITTI, ICCV 2019; "
        "maps: examples of dgSPARSE-Lib"
    )
    _FROM = "https://github.com/dgSPARSE/dgSPARSE-Lib (example/data/sample-data)"
    listed = {
        "semantickitti_minkunet_kmap_68866": Listed(68866, 27, 308946, _FROM),
        "semantickitti_minkunet_kmap_94595": Listed(94595, 27, 285855, _FROM),
    }

    def edges(self, file: Mapping[str, NDArray[Any]]) -> Edges:
        """Read ``knnz``, ``out_map`` and ``in_map``.

        Raises
        ------
        DatasetError
            An offset has two edges to one output.
        """
        counts, rows = file["knnz"], file["out_map"]
        offset = np.repeat(np.arange(counts.size), counts)
        pairs = np.sort(offset * (int(rows.max(initial=0)) + 1) + rows)
        if not openings(pairs).all():
            raise DatasetError("expected each output once for an offset, found one that is repeated")
        return offset, rows, file["in_map"]


class Twin(NamedTuple):
    """Sizes of a stand-in."""

    nodes: int
    edges: int
    relations: int
    inverses: bool
    """Every second relation has the edges of the one before in the other direction."""


class RelationalTwin(RelationalSource):
    """Seeded stand-ins for graphs that need a network: AM (of a museum), BGS (of rocks) and biokg (of proteins).

    Nodes, edges and relations are those of SparseTIR's table 2; ``seed`` (0) draws another. Half of the nodes are
    objects, the others values. Relations have sizes in proportion to 1 / rank. Every other one leads to a vocabulary
    whose first words are frequent, the others to values of their own. In AM and BGS each has an inverse. All of this
    is our choice, and so is the padding of their 3-D hyb.
    """

    name = "relational_twin"
    title = "twins of large graphs of several relations"
    citation = (
        "counts: Ye et al., SparseTIR, ASPLOS 2023, table 2; graphs: de Boer et al., Semantic Web 2012 (AM); "
        "Ristoski, de Vries and Paulheim, ISWC 2016 (BGS); Hu et al., NeurIPS 2020 (biokg)"
    )
    cached = True
    twins: ClassVar[Mapping[str, Twin]] = {
        "am": Twin(1_885_136, 5_668_682, 96, inverses=True),
        "bgs": Twin(94_806, 672_884, 96, inverses=True),
        "biokg": Twin(93_773, 4_762_678, 51, inverses=False),
    }

    def names(self, cache: Cache) -> Sequence[str]:
        """List the twins."""
        return tuple(self.twins)

    def load(self, name: str, args: Args, cache: Cache) -> RawMatrix:
        """Draw the graph; repeated edges are merged, so that some edges are missing. O(edges log edges)."""
        where = f"{self.name}/{name}"
        twin = self.twins[known(self.name, name, self.twins)]
        only(where, args, "seed")
        bits = np.random.PCG64([argument(where, args, "seed", 0, (0, 2**31 - 1)), twin.edges])
        ways = 1 + twin.inverses
        objects, edges, drawn = twin.nodes // 2, twin.edges // ways, twin.relations // ways
        values = twin.nodes - objects
        # Whole numbers throughout, so that every machine draws the same graph.
        shares = (1 << 20) // np.arange(1, drawn + 1)
        sizes = edges * shares // shares.sum()
        sizes[0] += edges - sizes.sum()
        relation, rows, cols = [], [], []
        for r, size in enumerate(sizes.tolist()):
            first, several, start = (int(word) for word in bits.random_raw(3) >> np.uint64(33))
            subject = (first + np.arange(size) // (1 + several % 3)) % objects
            words = bits.random_raw(size) >> np.uint64(48)
            if r % 2:
                vocabulary = 8 * isqrt(size)
                told = ((words * words >> np.uint64(16)) * words >> np.uint64(16)) * np.uint64(vocabulary)
                value = (told >> np.uint64(16)).astype(np.int64)
            else:
                value = np.arange(size)
            other = objects + (start + value) % values
            relation += [np.full(size, ways * r + way) for way in range(ways)]
            rows += [other, subject][:ways]
            cols += [subject, other][:ways]
        of = (np.concatenate(relation), np.concatenate(rows), np.concatenate(cols))
        return wide(twin.nodes, twin.relations, of, where, MatrixKind.TWIN)


def wide(nodes: int, relations: int, edges: Edges, where: Path | str, kind: MatrixKind = MatrixKind.REAL) -> RawMatrix:
    """Give the wide CSR of edges, with 1 over the edges of the same relation and row as values."""
    check_shape(str(where), nodes, nodes * relations, edges[0].size)
    ones = RelationalCsr.of_edges((nodes, nodes), relations, edges, where=str(where))
    relation, rows, _ = ones.edges
    _, pair, count = np.unique(relation.astype(np.int64) * nodes + rows, return_inverse=True, return_counts=True)
    return RawMatrix(ones.wide.shape, ones.wide.indptr, ones.wide.indices, (1 / count)[pair].astype(np.float32), kind)
