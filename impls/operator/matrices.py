"""The sparse matrix that a person gives, of SciPy, CuPy, PyTorch or spmark, as a canonical CSR on the host.

Its elements may have a type that no `Problem` has: float64.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import MatrixError, ProblemError, none_of
from spmark.impls.core.problem import (
    Csr,
    DType,
    Op,
    PlainProblem,
    Problem,
    canonical_rows,
    check_finite,
    check_of_two,
    dtype_name,
)


class ElementType(StrEnum):
    """Type of the operands, of the result and of A's values, all alike.

    Products of float64 are added up in float64, all others in float32.
    """

    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"
    FLOAT64 = "float64"

    @classmethod
    def of(cls, given: Any) -> ElementType:
        """Read a name, or a dtype of NumPy, CuPy, PyTorch or ml_dtypes.

        Raises
        ------
        ProblemError
            The type is another one; lists those that there are.
        """
        name = dtype_name(given)
        if name not in tuple(cls):
            raise ProblemError(none_of("a dtype", name, cls))
        return cls(name)

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype that elements are stored as."""
        return self.searched.numpy if self.searched else np.dtype(self.value)

    @cached_property
    def searched(self) -> DType | None:
        """The dtype of a `Problem`, which every implementation may take; None for float64."""
        return DType(self.value) if self.value in tuple(DType) else None

    def holds(self, other: str) -> bool:
        """Tell whether converting from the type called ``other`` is safe by NumPy's rule (``numpy.can_cast``).

        What NumPy has no type for, such as PyTorch's ``float8_e5m2``, is not.
        """
        if other == self.value:
            return True
        if other == ElementType.BFLOAT16:
            return self in (ElementType.FLOAT32, ElementType.FLOAT64)
        if self is ElementType.BFLOAT16:
            return other in ("bool", "int8", "uint8")
        try:
            return np.can_cast(np.dtype(other), self.numpy, "safe")
        except TypeError:
            return False


@dataclass(frozen=True, eq=False)
class OwnedMatrix:
    """A's pattern with values of any type, both in memory that no caller shares.

    Parameters
    ----------
    pattern : Csr
        Its values are ``values`` in float32; those of float64 count for nothing.
    values : (nnz,) array
        In CSR order, of ``dtype.numpy``.
    dtype : ElementType
    """

    pattern: Csr
    values: NDArray[Any]
    dtype: ElementType

    @classmethod
    def of(cls, given: Any, dtype: Any = None, safe: bool = False) -> OwnedMatrix:
        """Take a matrix as it is given.

        Parameters
        ----------
        given : sparse matrix, (edge_index, num_nodes), OwnedMatrix
            SciPy's or CuPy's of any format, PyTorch's COO, CSR or CSC, a `Csr`, or a graph as PyG has it. Entries of
            one place are added up, integers in float64 and others in the wider of their type and ``dtype``, and the
            columns of a row are sorted; the argument stays as it is.
        dtype : dtype, optional
            Type that the values are converted to; by default they keep their own.
        safe : bool
            Whether the conversion to ``dtype`` has to be one that NumPy calls safe.

        Raises
        ------
        MatrixError
            The argument is something else or an illegal matrix, or has values beyond the range of the type.
        ProblemError
            The values have a type without kernels and ``dtype`` is missing, or their conversion is not safe.

        Notes
        -----
        O(nnz log nnz) time where rows are not sorted, else O(nnz).
        """
        if isinstance(given, OwnedMatrix) and (dtype is None or ElementType.of(dtype) is given.dtype):
            return given.with_values(given.values.copy())  # plans may write values, and none a pattern
        matrix, found = _sparse_of(given)
        if dtype is None and found not in tuple(ElementType):
            raise ProblemError(
                f"expected a matrix of {', '.join(ElementType)}, found one of {found}: pass dtype, for instance "
                "dtype='float32'"
            )
        wanted = ElementType.of(found if dtype is None else dtype)
        if safe and not wanted.holds(found):
            raise ProblemError(
                f"expected a matrix of {wanted}, as the dense operand is, or of a type that {wanted} holds, found one "
                f"of {found}: convert one of the two, or pass dtype='{wanted}' to spmark.compile"
            )
        rows = canonical_rows(matrix, wide=wanted is ElementType.FLOAT64)
        with np.errstate(over="ignore"):
            values = np.array(rows.data, np.float32 if wanted is ElementType.BFLOAT16 else wanted.numpy)
            values = wanted.searched.stored(values) if wanted.searched else values
        return cls.checked(rows.shape, np.array(rows.indptr), np.array(rows.indices), values, wanted, given=rows.data)

    @classmethod
    def checked(
        cls,
        shape: tuple[int, int],
        indptr: NDArray[Any],
        indices: NDArray[Any],
        values: NDArray[Any],
        dtype: ElementType,
        *,
        given: NDArray[Any] | None = None,
    ) -> OwnedMatrix:
        """Check the arrays of a CSR whose values have the type already; the arrays are not copied.

        Parameters
        ----------
        shape, indptr, indices
            As `Csr.checked` takes them.
        values : (nnz,) array
            Of ``dtype.numpy``.
        dtype : ElementType
        given : (nnz,) array, optional
            The values before their conversion to the type, which errors tell; by default ``values``.

        Raises
        ------
        MatrixError
            The matrix is not a canonical CSR, or a value is not finite. O(nnz).
        """
        numbers = dtype.searched.numbers(values) if dtype.searched else values
        check_finite(numbers, numbers if given is None else given, dtype)
        wide = numbers.astype(np.float32, copy=False) if dtype.searched else np.zeros(values.size, np.float32)
        return cls(Csr.checked(shape, indptr, indices, wide), values, dtype)

    def transposed(self) -> tuple[OwnedMatrix, NDArray[np.int64]]:
        """Give the transpose, and the position in this matrix of each of its non-zeros, (nnz,) int64. O(nnz)."""
        from scipy import sparse

        pattern = self.pattern
        positions = np.arange(pattern.nnz)
        turned = sparse.csr_array((positions, pattern.indices, pattern.indptr), shape=pattern.shape).tocsc()
        arrays = (turned.indptr, turned.indices, self.values[turned.data])
        return OwnedMatrix.checked(pattern.shape[::-1], *arrays, self.dtype), turned.data

    def with_values(self, values: NDArray[Any]) -> OwnedMatrix:
        """Give the same pattern with other values, (nnz,) of ``dtype.numpy``, which are not copied."""
        wide = self.pattern.values
        if self.dtype.searched:
            wide = self.dtype.searched.numbers(values).astype(np.float32, copy=False)
        return OwnedMatrix(replace(self.pattern, values=wide), values, self.dtype)

    def problem(self, op: Op, width: int, scaled: bool) -> Problem:
        """Give the problem at one width: a `Problem` where the type has a `DType`, else a `PlainProblem`.

        Raises
        ------
        ProblemError
            The width is illegal, or SpMM is to be scaled.
        """
        if self.dtype.searched is not None:
            return Problem(op, self.pattern, width, self.dtype.searched, scaled)
        return PlainProblem(op, self.pattern, self.values, width, scaled)


def _sparse_of(given: Any) -> tuple[Any, str]:
    """Give a matrix as SciPy's, which may share memory and hold duplicates, and the name of its type."""
    from scipy import sparse

    given = _of_edges(*given) if isinstance(given, tuple) and len(given) == 2 else given
    name = "float32" if isinstance(given, Csr) else dtype_name(getattr(given, "dtype", None))
    if isinstance(given, OwnedMatrix):
        # SciPy has no halves.
        given = replace(given.pattern, values=given.pattern.values if given.dtype.searched else given.values)
    if isinstance(given, Csr):
        return sparse.csr_array((given.values, given.indices, given.indptr), shape=given.shape), name
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(given, torch.Tensor):
        given = _of_torch(given, torch)
    elif type(given).__module__.startswith("cupyx.") and hasattr(given, "get"):
        given = given.get()
    wanted = "a sparse matrix of SciPy, CuPy or PyTorch, a Csr, or (edge_index, num_nodes)"
    check_of_two(given, "matrix", wanted, ": scipy.sparse.csr_array makes one")
    if given.dtype.kind not in "fiub":
        raise MatrixError(f"matrix: expected real values, found {given.dtype}")
    return given, name


def _of_edges(edge_index: Any, num_nodes: Any) -> Any:
    """Give a graph of PyG as a matrix with a 1 at (target, source) of each edge, so that A X sums what PyG would."""
    from scipy import sparse

    edges = edge_index.cpu() if hasattr(edge_index, "cpu") else edge_index
    edges = np.asarray(edges.get() if hasattr(edges, "get") else edges)
    if edges.shape[:-1] != (2,) or edges.dtype.kind not in "iu" or not isinstance(num_nodes, int | np.integer):
        raise MatrixError(
            "matrix: expected (edge_index, num_nodes), integers of shape (2, edges) and a count, found "
            f"{edges.dtype} of shape {edges.shape} and {num_nodes!r}"
        )
    try:
        return sparse.coo_array((np.ones(edges.shape[1], np.float32), edges[::-1]), shape=(num_nodes, num_nodes))
    except ValueError as error:
        raise MatrixError(f"matrix: expected nodes below num_nodes = {num_nodes} in edge_index: {error}") from error


def _of_torch(given: Any, torch: Any) -> Any:
    """Give a sparse tensor as SciPy's, in its layout; what is narrower than float32 comes as float32."""
    from scipy import sparse

    layouts = {torch.sparse_coo: "COO", torch.sparse_csr: "CSR", torch.sparse_csc: "CSC"}
    if given.layout not in layouts or given.dim() != 2 or given.dense_dim():
        raise MatrixError(
            f"matrix: expected a sparse tensor of two dimensions in {', '.join(layouts.values())}, found layout "
            f"{given.layout} of shape {tuple(given.shape)}: tensor.to_sparse_csr() makes one"
        )
    refuse_gradient(given, torch, "matrix")
    host, shape = given.detach().cpu(), tuple(given.shape)
    of_coo = host.layout == torch.sparse_coo
    values = host._values() if of_coo else host.values()  # values() asks for coalesce(), whose sums may overflow
    values = (values.float() if values.is_floating_point() and values.element_size() < 4 else values).numpy()
    try:
        if of_coo:
            return sparse.coo_array((values, host._indices().numpy()), shape=shape)
        if host.layout == torch.sparse_csr:
            return sparse.csr_array((values, host.col_indices().numpy(), host.crow_indices().numpy()), shape=shape)
        return sparse.csc_array((values, host.row_indices().numpy(), host.ccol_indices().numpy()), shape=shape)
    except ValueError as error:
        raise MatrixError(f"matrix: expected legal indices of a sparse tensor, found: {error}") from error


def refuse_gradient(tensor: Any, torch: Any, role: str) -> None:
    """Refuse a tensor whose gradient would be lost without a word.

    Raises
    ------
    ProblemError
        The tensor requires a gradient while gradients are recorded, or has a tangent of forward mode.
    """
    if loses_gradient(tensor, torch):
        raise ProblemError(
            f"{role}: expected a tensor without a gradient, found one that requires it or has a tangent: this product "
            "records none; take spmark.torch, pass tensor.detach(), or work inside of torch.no_grad()"
        )


def has_tangent(tensor: Any, torch: Any) -> bool:
    """Tell whether forward mode follows a tensor."""
    forward_ad = torch.autograd.forward_ad
    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None


def loses_gradient(tensor: Any, torch: Any) -> bool:
    """Tell whether a product that records no gradient would lose one of this tensor's, of either mode."""
    return (tensor.requires_grad and torch.is_grad_enabled()) or has_tangent(tensor, torch)
