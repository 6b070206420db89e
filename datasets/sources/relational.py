"""Matrices of several relations: what all share, public knowledge graphs, and the mirror's maps of sparse convolutions.

Each is the wide CSR of a `spmark.impls.core.relational.RelationalCsr`, as which
`spmark.datasets.relational.load_relational` gives it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spmark.datasets.cache import Cache
from spmark.datasets.readers.archive import FETCH_AGAIN, unpacked
from spmark.datasets.source import Args, Facts, RawMatrix, Source, check_bytes, check_shape, known, only
from spmark.datasets.sources.downloaded import DownloadedSource, read_integers
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.files import is_file
from spmark.impls.core.problem import openings
from spmark.impls.core.relational import RelationalCsr
from spmark.impls.core.untrusted import reading
from spmark.records.schema import MatrixKind

Edges = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]


class RelationalSource(Source):
    """A source whose matrices are those of several relations, square ones where it does not say otherwise."""

    def relations(self, name: str, rows: int, cols: int) -> int:
        """Give the number of square matrices side by side."""
        return cols // rows


class Listed(NamedTuple):
    """A matrix of the mirror, and where its edges come from."""

    rows: int
    relations: int
    nnz: int
    url: str


@contextmanager
def mirrored(cache: Cache, place: str, url: str, what: str) -> Iterator[Mapping[str, NDArray[Any]]]:
    """Open an npz file of the local mirror.

    Parameters
    ----------
    cache : Cache
        Knows the mirror.
    place : str
        Path of the file in the mirror.
    url : str
        Where its data come from, for who lacks them.
    what : str
        What the file should be, named in errors.

    Raises
    ------
    DatasetError
        There is no such file, or it is damaged or too large.
    """
    path = None if cache.mirror is None else cache.mirror / place
    if path is None or not path.is_file():
        raise DatasetError(
            f"{place.removesuffix('.npz')}: expected SPMARK_MIRROR to name a folder with {place}, found none; its data "
            f"come from {url}"
        )
    with reading(path, what), np.load(path, allow_pickle=False) as file:
        check_bytes(str(path), "its arrays", sum(info.file_size for info in file.zip.infolist()))
        yield file


class MirroredEdges(RelationalSource):
    """Edges in npz files of the local mirror, ``<source>/<name>.npz``."""

    licence = "per matrix, in the mirror's MANIFEST.tsv"
    listed: ClassVar[Mapping[str, Listed]]

    def names(self, cache: Cache) -> tuple[str, ...]:
        """List the matrices."""
        return tuple(self.listed)

    def facts(self, name: str) -> Facts | None:
        """Give the counts of a matrix."""
        one = self.listed.get(name)
        return None if one is None else Facts(one.rows, one.rows * one.relations, one.nnz)

    def mirrored_as(self, name: str) -> str:
        """Give the file of the mirror."""
        return f"{self.name}/{name}.npz"

    def load(self, name: str, args: Args, cache: Cache) -> RawMatrix:
        """Read a file of the mirror. Takes no arguments."""
        where = f"{self.name}/{name}"
        only(where, args)
        one = self.listed[known(self.name, name, self.listed)]
        with mirrored(cache, self.mirrored_as(name), one.url, "an npz file with edges of several relations") as file:
            edges = self.edges(file)
        return wide(one.rows, one.relations, edges, where)

    @abstractmethod
    def edges(self, file: Mapping[str, NDArray[Any]]) -> Edges:
        """Give relation, row and column of each edge."""


class Hetero(MirroredEdges, DownloadedSource):
    """Knowledge graphs: an edge of relation r from subject j to object i is A_r[i, j].

    They come from the mirror, or from repositories. Nodes and relations that have names are numbered as they first
    appear.

    Stored values are those of a relational graph network: 1 over the edges of the same relation and object. AIFB and
    MUTAG are without the relations that tell labels; all have edges in one direction.
    """

    name = "hetero"
    cached = False  # they are small
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
        """Read ``rel``, ``dst`` and ``src``, or the wide CSR that ``spmark mirror make`` writes."""
        if "rel" in file:
            return file["rel"], file["dst"], file["src"]
        nodes, rows = file["shape"][0], np.repeat(np.arange(file["indptr"].size - 1), np.diff(file["indptr"]))
        return file["indices"] // nodes, rows, file["indices"] % nodes

    def load(self, name: str, args: Args, cache: Cache) -> RawMatrix:
        """Read a file of the mirror, or a download. Takes no arguments."""
        if cache.mirror is not None and is_file(cache.mirror / self.mirrored_as(name)):
            return MirroredEdges.load(self, name, args, cache)
        return DownloadedSource.load(self, name, args, cache)

    def read(self, path: Path, name: str) -> RawMatrix:
        """Read OpenKE's triples of numbers (subject, object, relation), or lines of three names."""
        one = self.listed[name]
        if path.name == "train2id.txt":
            subjects, objects, relation = read_integers(path, str(path), columns=3, header=1)
        elif path.suffix == ".gz":
            with unpacked(path, "", FETCH_AGAIN) as file:
                relation, objects, subjects = _numbered(file, path)
        else:
            relation, objects, subjects = _numbered(path, path)
        return wide(one.rows, one.relations, (relation, objects, subjects), path)


def _numbered(file: Path, where: Path) -> Edges:
    """Read lines of a subject, a relation and an object, which are names; those of N-Triples end with a full stop."""
    nodes: dict[str, int] = {}
    relations: dict[str, int] = {}
    found: list[tuple[int, int, int]] = []
    with reading(where, "lines of a subject, a relation and an object", remedy=FETCH_AGAIN):
        for line in filter(str.strip, file.read_text(encoding="utf-8").split("\n")):
            subject, relation, object_ = line.split(None, 2)
            at = nodes.setdefault(subject, len(nodes))
            to = nodes.setdefault(object_.rstrip().removesuffix(".").rstrip(), len(nodes))
            found.append((relations.setdefault(relation, len(relations)), to, at))
    relation_of, objects, subjects = np.array(found, np.int64).reshape(-1, 3).T
    return relation_of, objects, subjects


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


def wide(nodes: int, relations: int, edges: Edges, where: Path | str, kind: MatrixKind = MatrixKind.REAL) -> RawMatrix:
    """Give the wide CSR of edges, with 1 over the edges of the same relation and row as values."""
    check_shape(str(where), nodes, nodes * relations, edges[0].size)
    ones = RelationalCsr.of_edges((nodes, nodes), relations, edges, where=str(where))
    relation, rows, _ = ones.edges
    _, pair, count = np.unique(relation.astype(np.int64) * nodes + rows, return_inverse=True, return_counts=True)
    return RawMatrix(ones.wide.shape, ones.wide.indptr, ones.wide.indices, (1 / count)[pair].astype(np.float32), kind)
