"""The relations of a loaded matrix, which stand side by side in its CSR."""

from __future__ import annotations

from spmark.datasets.cache import Cache
from spmark.datasets.load import load_matrix
from spmark.datasets.sources.relational import RelationalSource
from spmark.datasets.sources.table import find_source
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.problem import Csr
from spmark.impls.core.relational import RelationalCsr
from spmark.records.schema import MatrixSource, Orientation


def load_relational(spec: MatrixSource, cache: Cache, seed: int) -> RelationalCsr:
    """Load a matrix of several relations.

    Parameters
    ----------
    spec : MatrixSource
        Of a source of such matrices, ``hetero``, ``pointcloud`` or ``relational_twin``, or with its ``relations``.
    cache : Cache
    seed : int
        Of the values, unless the spec asks for stored ones.

    Raises
    ------
    DatasetError
        The matrix cannot be loaded (`load_matrix`), or is none of several relations (`of_relations`).
    """
    return of_relations(spec, load_matrix(spec, cache, seed).csr)


def of_relations(spec: MatrixSource, csr: Csr) -> RelationalCsr:
    """Cut a loaded matrix into its relations.

    Raises
    ------
    DatasetError
        The number of relations is not known, or the transpose is asked for.
    MatrixError
        The number does not divide the columns, or is too large.
    """
    if not spec.relations and not isinstance(find_source(spec.source), RelationalSource):
        raise DatasetError(
            f"{spec.id}: expected the number of its relations, found none: say relations: 12, for example, or take a "
            "matrix of hetero, pointcloud or relational_twin"
        )
    if spec.orientation is not Orientation.A:
        raise DatasetError(f"{spec.id}: expected a matrix of several relations as it is stored, found its transpose")
    return RelationalCsr.checked(csr, spec.relations or csr.num_cols // csr.num_rows, spec.id)
