"""A sparse matrix with the signs that people know: ``A @ b``, ``A.T @ b``; plans are made as products ask for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import OperandError
from spmark.impls.core.problem import Op, dtype_name
from spmark.impls.operator.api import compile as compile_operator
from spmark.impls.operator.choose import loaded, one_of, widths_of
from spmark.impls.operator.compiled import CompiledOperator
from spmark.impls.operator.matrices import ElementType, OwnedMatrix
from spmark.impls.table import create


class Kind(NamedTuple):
    """What tells one operator of a matrix from another."""

    op: Op
    transposed: bool
    fixed: bool
    """Whether A's values stay as they are."""
    dtype: Any
    device: str
    turned_values: bool = False
    """Whether new values of A come in the order of its transpose."""
    gpu: int = 0
    """Number of the GPU, which is the current one when a width is planned."""


class Operators:
    """The compiled operators of one matrix and of its transpose, each made once.

    Parameters
    ----------
    matrix : OwnedMatrix
    use, budget_s
        As `spmark.compile` takes them. Where no implementation of ``use`` has an operator, `auto` serves it.
    """

    def __init__(self, matrix: OwnedMatrix, use: str | Sequence[str], budget_s: float | None) -> None:
        self.use, self.budget_s = use, budget_s
        self.made: dict[Kind, CompiledOperator] = {}
        self._given = matrix
        self._lock = threading.Lock()

    @cached_property
    def _other(self) -> tuple[OwnedMatrix, NDArray[np.int64]]:
        return self._given.transposed()

    def matrix(self, transposed: bool) -> OwnedMatrix:
        """Give the matrix, or its transpose."""
        return self._other[0] if transposed else self._given

    def origins(self, transposed: bool) -> NDArray[np.int64]:
        """Give the position in `matrix` of each non-zero of the other one, (nnz,)."""
        found = self._other[1]
        if not transposed:
            return found
        inverse = np.empty_like(found)
        inverse[found] = np.arange(found.size)
        return inverse

    def find(self, kind: Kind) -> CompiledOperator:
        """Give the operator of a kind, which plans each width at its first product."""
        if kind not in self.made:
            with self._lock:
                if kind not in self.made:
                    made = compile_operator(
                        self.matrix(kind.transposed),
                        kind.op.value,
                        width=(),
                        dtype=kind.dtype,
                        use=names_with(self.use, kind.op),
                        values="constant" if kind.fixed else "variable",
                        device=kind.device,
                        budget_s=self.budget_s,
                    )
                    if kind.turned_values:
                        made.order = self.origins(not kind.transposed)
                    self.made[kind] = made
        return self.made[kind]


def names_with(use: str | Sequence[str], op: Op) -> str | list[str]:
    """Give the names of ``use`` that have an operator, or ``"auto"`` where none has it."""
    return [name for name in loaded(use) if op in create(name).ops] or "auto"


class Signs:
    """A sparse matrix that shares its operators with its transpose, and the sign ``@``; subclasses have `spmm`.

    Attributes
    ----------
    shape : tuple of int
        (I, K).
    nnz : int
        Non-zeros, each place once.
    dtype
        Type of the values.
    """

    __array_ufunc__ = None
    """NumPy leaves ``x @ A`` to this class."""
    shown: str
    """Name of the class for users."""
    dtype: Any
    spmm: Callable[..., Any]

    def _set(self, operators: Operators, turned: bool, device: Any) -> None:
        self._operators, self._turned, self._device = operators, turned, device
        self._matrix = operators.matrix(turned)
        self.shape: tuple[int, int] = self._matrix.pattern.shape
        self.nnz: int = self._matrix.pattern.nnz
        self._transpose: Self | None = None

    @property
    def T(self) -> Self:
        """The transpose, which shares all plans; values given to its products are in the order of its own CSR.

        `torch.compile` traces it without a break of the graph where it was asked for before.
        """
        if self._transpose is None:
            self._transpose = type(self).__new__(type(self))
            self._transpose._set(self._operators, not self._turned, self._device)
        return self._transpose

    def __repr__(self) -> str:
        """Say in a line what the matrix is."""
        return f"<{self.shown} {self.shape[0]} x {self.shape[1]}, {self.nnz:,} non-zeros, {self.dtype}>"

    def __matmul__(self, b: Any) -> Any:
        """Compute ``A @ b`` for b (K, J) or (K,), as `spmm` does."""
        return self.spmm(b.reshape(-1, 1)).reshape(-1) if getattr(b, "ndim", 2) == 1 else self.spmm(b)

    def __rmatmul__(self, x: Any) -> Any:
        """Compute ``x @ A`` for x (N, I) or (I,), as the transpose of ``A.T @ x.T``."""
        return (self.T @ x.T).T if getattr(x, "ndim", 1) == 2 else self.T @ x


class SparseOperator(Signs):
    """A sparse matrix for products with dense arrays: ``A @ b``, ``A.T @ b`` and ``A.sddmm(x, y)``.

    Arrays of NumPy, CuPy and PyTorch are answered in kind. A product is planned at the first call of its J and type, by
    rule and without measuring, and the plan is kept. `tune` lets implementations race for it. `spmark.torch` has
    products with gradients.

    Parameters
    ----------
    a : sparse matrix (I, K)
        As `spmark.compile` takes it.
    dtype : dtype, optional
        Type that A's values are converted to; by default they keep their own. Operands of another type are taken where
        NumPy calls the conversion of A's values safe.
    use : str or sequence of str
        As `spmark.compile` takes it. Where none of these implementations has an operator, ``"auto"`` serves it.
    device : {"auto", "cuda", "cpu", "host-simt"}
        Where products are computed; ``auto`` is the GPU where there is one, else the CPU.

    Examples
    --------
    >>> import numpy as np, scipy.sparse, spmark
    >>> A = spmark.SparseOperator(scipy.sparse.eye_array(3, 4, format="csr", dtype=np.float32), device="cpu")
    >>> A @ np.arange(4, dtype=np.float32)
    array([0., 1., 2.], dtype=float32)
    >>> (A.T @ np.ones((3, 2), np.float32)).shape
    (4, 2)
    >>> A.tune(64)  # a race, for all products of 64 columns that follow
    >>> A
    <spmark.SparseOperator 3 x 4, 3 non-zeros, float32>
    """

    shown = "spmark.SparseOperator"

    def __init__(
        self,
        a: Any,
        *,
        dtype: Any = None,
        use: str | Sequence[str] = "auto",
        device: Literal["auto", "cuda", "cpu", "host-simt"] = "auto",
    ) -> None:
        self._set(Operators(OwnedMatrix.of(a, dtype), use, budget_s=0), False, device)
        self._operator(Op.SPMM, None)  # refuses a name or a device now

    def _set(self, operators: Operators, turned: bool, device: Any) -> None:
        super()._set(operators, turned, device)
        self._known: dict[tuple[Op, Any], CompiledOperator] = {}
        self.dtype: str = str(self._matrix.dtype)

    def spmm(self, b: Any, *, out: Any = None) -> Any:
        """Compute C = A B, as a `CompiledOperator` does.

        Parameters
        ----------
        b : array (K, J)
        out : array (I, J), optional

        Returns
        -------
        array (I, J)
            ``out``, or a new array of ``b``'s library, type and device.

        Raises
        ------
        OperandError, ProblemError, BuildError
            As a call of a `CompiledOperator`.
        """
        return self._operator(Op.SPMM, getattr(b, "dtype", None))(b, out=out)

    def sddmm(self, x: Any, y: Any, *, out: Any = None) -> Any:
        """Compute ``D[i, k] = sum_j X[i, j] Y[k, j]`` at A's non-zeros, as `spmark.sddmm` does.

        Parameters
        ----------
        x, y : arrays (I, J), (K, J)
        out : array (nnz,), optional

        Returns
        -------
        array (nnz,)
            In the order of the CSR of A with sorted columns; of ``A.T``, in that of the transpose.

        Raises
        ------
        OperandError, ProblemError, BuildError
            As `spmm`.
        """
        return self._operator(Op.SDDMM, getattr(x, "dtype", None))(x, y, out=out)

    def tune(
        self,
        width: int | Sequence[int],
        op: Literal["spmm", "sddmm"] = "spmm",
        *,
        dtype: Any = None,
        budget_s: float | None = None,
        runs: int | None = None,
    ) -> None:
        """Choose plans in a race of implementations, and keep them; `CompiledOperator.tune` of each J.

        Parameters
        ----------
        width : int or sequence of int
            J.
        op : {"spmm", "sddmm"}
            Of ``A.T`` where its ``tune`` is called.
        dtype : dtype, optional
            Type of the operands; by default A's.
        budget_s, runs
            As `spmark.compile` takes them.

        Raises
        ------
        ProblemError, BuildError
            As `CompiledOperator.tune`.
        """
        kind = Op(one_of("an operator", op, tuple(Op)))
        made = self._operator(kind, None if dtype is None else ElementType.of(dtype))
        for one in widths_of(width):
            made.tune(one, budget_s=budget_s, runs=runs)

    def explain(self) -> str:
        """Describe in lines of text what was chosen for each kind of product, why, and what it cost."""
        return "\n".join([repr(self).strip("<>"), *(made.explain() for made in self._operators.made.values())])

    def _operator(self, op: Op, dtype: Any) -> CompiledOperator:
        """Give the operator for operands of a type, or of A's where theirs has no kernels: it refuses them."""
        known = self._known.get((op, dtype))
        if known is not None:
            return known
        name = dtype_name(dtype)
        if name not in tuple(ElementType):
            name = self.dtype
        elif not ElementType(name).holds(self.dtype):
            raise OperandError(
                f"{op}: expected operands of {self.dtype}, as A's values are, or of a type that holds these, found "
                f"{name}: convert them, or pass dtype='{name}' to spmark.SparseOperator"
            )
        made = self._known[op, dtype] = self._operators.find(Kind(op, self._turned, True, name, self._device))
        return made
