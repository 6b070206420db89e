"""Matrices in files of public repositories: graphs as lists of edges, and matrices that programs bring for tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from spmark.datasets.readers.archive import FETCH_AGAIN, unpacked
from spmark.datasets.readers.matrix_market import read_mtx
from spmark.datasets.source import RawMatrix, check_bytes, check_shape, csr_from_edges
from spmark.datasets.sources.downloaded import DownloadedSource, EdgeSource, from_edges, read_integers, square
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.untrusted import reading
from spmark.records.schema import MatrixKind


class Heterophilous(EdgeSource):
    """Graphs whose neighbours differ, undirected: every listed edge in both directions."""

    name = "heterophilous"
    title = "heterophilous graphs"
    licence = "MIT (repository)"
    citation = (
        "Platonov, Kuznedelev, Diskin, Babenko and Prokhorenkova, A critical look at the evaluation of GNNs under "
        "heterophily, ICLR 2023"
    )
    url = "https://github.com/yandex-research/heterophilous-graphs"

    def read(self, path: Path, name: str) -> RawMatrix:
        """Read ``edges`` (n, 2) and ``node_labels`` (nodes,) of an npz file."""
        with reading(path, "an npz file with edges and node_labels", remedy=FETCH_AGAIN):
            with np.load(path, allow_pickle=False) as file:
                sizes = {info.filename: info.file_size for info in file.zip.infolist()}
                check_bytes(str(path), "its edges", sizes["edges.npy"] + sizes["node_labels.npy"])
                edges, nodes = file["edges"], file["node_labels"].shape[0]
            if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
                raise DatasetError(f"{path}: expected edges as integers (n, 2), found {edges.dtype} {edges.shape}")
            start, to = edges.astype(np.int64).T
        return square(nodes, np.concatenate([start, to]), np.concatenate([to, start]), path)


class Musae(EdgeSource):
    """Developers on GitHub who follow each other, undirected."""

    name = "musae"
    title = "MUSAE graphs"
    licence = "none stated"
    citation = "Rozemberczki, Allen and Sarkar, Multi-scale attributed node embedding, J. Complex Networks 2021"
    url = "https://snap.stanford.edu/data/github-social.html"

    def read(self, path: Path, name: str) -> RawMatrix:
        """Read the table of edges out of the archive."""
        with unpacked(path, f"musae_{name}_edges.csv", FETCH_AGAIN) as file:
            return from_edges(read_integers(file, str(path), delimiter=",", header=1), path, both=True)


class BioNev(EdgeSource):
    """Interactions of human proteins (STRING), undirected."""

    name = "bionev"
    title = "BioNEV graphs"
    licence = "none stated"
    citation = (
        "Yue et al., Graph embedding on biomedical networks, Bioinformatics 2020; Szklarczyk et al., STRING v10, "
        "Nucleic Acids Research 2015"
    )
    url = "https://github.com/xiangyue9607/BioNEV"

    def read(self, path: Path, name: str) -> RawMatrix:
        """Read a list of edges."""
        return from_edges(read_integers(path, str(path)), path, both=True)


class Github(DownloadedSource):
    """Test matrices of programs, by ``owner/repository/path``: Matrix Market files, and ``.dat`` files of FASP."""

    name = "github"
    title = "matrices in repositories"
    licence = "the repository's"
    citation = (
        "Davis, SuiteSparse; Anzt et al., Ginkgo, ACM TOMS 48(1), 2022; Zhang et al., FASP: fast auxiliary space "
        "preconditioning"
    )
    url = "https://github.com"

    def place(self, name: str) -> str:
        """Give where the cache keeps the file."""
        return f"github/{name}"

    def read(self, path: Path, name: str) -> RawMatrix:
        """Read a file."""
        return _read_fasp(path) if path.suffix == ".dat" else read_mtx(path, remedy=FETCH_AGAIN)


def _read_fasp(path: Path) -> RawMatrix:
    """Read FASP's text of a square CSR: rows, indptr, indices and values one after the other, counted from 1."""
    with reading(path, "numbers of a CSR", remedy=FETCH_AGAIN):
        words = path.read_text(encoding="ascii").split()
        size = int(words[0])
        check_shape(str(path), size, size)
        indptr = np.array(words[1 : size + 2], np.int64) - 1
        nnz = int(indptr[-1])
        if indptr[0] or (np.diff(indptr) < 0).any():
            raise DatasetError(f"{path}: expected an indptr that begins at 1 and never falls, found another")
        if len(words) != size + 2 + 2 * nnz:
            raise DatasetError(f"{path}: expected {size + 2 + 2 * nnz:,} numbers, found {len(words):,}: truncated?")
        indices = np.array(words[size + 2 : size + 2 + nnz], np.int64) - 1
        values = np.array(words[size + 2 + nnz :], np.float64)
        # Rows are not sorted in the file.
        rows = np.repeat(np.arange(size), np.diff(indptr))
        return csr_from_edges((size, size), rows, indices, values, MatrixKind.REAL, merge=False, where=str(path))
