"""Loading a matrix of several relations, which is stored and checked as its wide CSR."""

from __future__ import annotations

from spmark.datasets.cache import Cache
from spmark.datasets.load import load_matrix
from spmark.datasets.sources.relational import RelationalSource
from spmark.datasets.sources.table import find_source
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.relational import RelationalCsr
from spmark.records.schema import MatrixSource, Orientation


def load_relational(spec: MatrixSource, cache: Cache, seed: int) -> RelationalCsr:
    """Load a matrix of several relations.

    Parameters
    ----------
    spec : MatrixSource
        Of a source of such matrices: ``hetero``, ``pointcloud``, ``minkunet``, ``relational_twin``.
    cache : Cache
    seed : int
        Of the values, unless the spec asks for stored ones.

    Raises
    ------
    DatasetError
        The source has no such matrices, the transpose is asked for, or the matrix cannot be loaded (`load_matrix`).
    """
    source = find_source(spec.source)
    if not isinstance(source, RelationalSource):
        raise DatasetError(f"{spec.id}: expected a source of matrices of several relations, found {spec.source}")
    if spec.orientation is not Orientation.A:
        raise DatasetError(f"{spec.id}: expected a matrix of several relations as it is stored, found its transpose")
    csr = load_matrix(spec, cache, seed).csr
    return RelationalCsr.checked(csr, source.relations(spec.name), spec.id)
