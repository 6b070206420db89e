"""Loading a matrix of several relations, which is stored and checked as its wide CSR."""

from __future__ import annotations

from spmark.datasets.cache import Cache
from spmark.datasets.load import load_matrix
from spmark.datasets.sources.table import find_source
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.relational import RelationalCsr
from spmark.records.schema import MatrixSource, Orientation


def load_relational(spec: MatrixSource, cache: Cache, seed: int) -> RelationalCsr:
    """Load a matrix of several relations.

    Parameters
    ----------
    spec : MatrixSource
        Such as ``ogb/ogbl-biokg``, ``dgl/aifb``, or one of ``hetero``, ``pointcloud``, ``relational_twin``.
    cache : Cache
    seed : int
        Of the values, unless the spec asks for stored ones.

    Raises
    ------
    DatasetError
        The matrix is of one relation, the transpose is asked for, or the matrix cannot be loaded (`load_matrix`).
    """
    if not find_source(spec.source).relational(spec.name):
        raise DatasetError(
            f"{spec.id}: expected a matrix of several relations, found one of {spec.source} that is none"
        )
    if spec.orientation is not Orientation.A:
        raise DatasetError(f"{spec.id}: expected a matrix of several relations as it is stored, found its transpose")
    csr = load_matrix(spec, cache, seed).csr
    return RelationalCsr.checked(csr, csr.num_cols // csr.num_rows, spec.id)
