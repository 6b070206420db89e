"""Products of sparse matrices for PyTorch, with gradients; reached as `spmark.torch`."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import torch  # pyright: ignore[reportMissingImports]
from torch import Tensor  # pyright: ignore[reportMissingImports]

from spmark.impls.core.errors import BuildError, OperandError, ProblemError
from spmark.impls.core.problem import Op
from spmark.impls.operator.api import compile as compile_operator
from spmark.impls.operator.arrays import refuse_nested
from spmark.impls.operator.choose import loaded, one_of, widths_of
from spmark.impls.operator.compiled import CompiledOperator
from spmark.impls.operator.matrices import ElementType, OwnedMatrix, loses_gradient
from spmark.impls.operator.native import NativeCalls
from spmark.impls.operator.torchops import register, sddmm, sddmm_out, spmm, spmm_out
from spmark.impls.table import create

__all__ = ["SparseLinear", "SparseMatrix"]


class SparseMatrix:
    """A sparse matrix whose products have gradients.

    Products are operators of `torch.library`: `torch.compile` traces them without a break of its graph, and a gradient
    of a gradient works. Exported programs cannot hold a matrix, which lives in the process.

    Parameters
    ----------
    a : sparse matrix (I, K)
        As `spmark.compile` takes it; a tensor's gradient is not recorded: pass values to products for that.
    width : int or sequence of int
        J for which products are planned at once; other widths are planned at their first use.
    backward : bool
        Plan what gradients need at once, too. Otherwise the first backward pass plans it, which a capture of a CUDA
        graph refuses.
    dtype, use, budget_s
        As in `spmark.compile`. Where no implementation of ``use`` has an operator, that operator is left to ``"auto"``.
    device : str
        ``"cpu"`` or ``"cuda"``, where ``width`` is planned; by default the device of a sparse tensor, else the CPU.
        Products run where their operands are.
    """

    def __init__(
        self,
        a: Any,
        *,
        width: int | Sequence[int] = (),
        backward: bool = False,
        dtype: Any = None,
        use: str | Sequence[str] = "auto",
        budget_s: float | None = None,
        device: Literal["cpu", "cuda"] | None = None,
    ) -> None:
        with torch.no_grad():
            self._matrix = OwnedMatrix.of(a, dtype)
        self.shape: tuple[int, int] = self._matrix.pattern.shape
        """(I, K)."""
        self.nnz: int = self._matrix.pattern.nnz
        """Non-zeros, each place once."""
        self.dtype: torch.dtype = getattr(torch, str(self._matrix.dtype))
        """Type of the values."""
        self._turned, origins = self._matrix.transposed()
        self._use, self._budget_s = use, budget_s
        self._lock = threading.RLock()
        self._operators: dict[tuple[Any, ...], CompiledOperator] = {}
        self._copies: dict[tuple[str, torch.device], Tensor] = {
            ("origins", torch.device("cpu")): torch.from_numpy(origins),
            ("lengths", torch.device("cpu")): torch.from_numpy(self._matrix.pattern.row_lengths),
        }
        self.handle = register(self)
        self._native = NativeCalls(self.handle)
        self._place = device or (a.device.type if isinstance(a, Tensor) else "cpu")
        self.plan(width, backward=backward)

    @property
    def values(self) -> Tensor:
        """A copy of A's values on the host, (nnz,), in the order of its CSR with sorted columns."""
        kept = torch.from_numpy(self._matrix.values.copy())
        return kept.view(torch.bfloat16) if self.dtype is torch.bfloat16 else kept

    def __repr__(self) -> str:
        """Say in a line what the matrix is."""
        return f"<spmark.torch.SparseMatrix {self.shape[0]} x {self.shape[1]}, {self.nnz:,} non-zeros, {self.dtype}>"

    def __deepcopy__(self, memo: Any) -> SparseMatrix:
        """Give the matrix itself, which never changes: copies of a module share it."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Let a matrix travel with a module that is saved: arrays and arguments, no plans."""
        pattern = self._matrix.pattern
        arrays = (pattern.shape, pattern.indptr, pattern.indices, self._matrix.values)
        return _restored, (*arrays, str(self._matrix.dtype), self._use, self._budget_s, self._place)

    def to_dtype(self, dtype: torch.dtype) -> SparseMatrix:
        """Give the matrix with values of another type; nothing is planned yet."""
        return SparseMatrix(self._matrix, dtype=dtype, use=self._use, budget_s=self._budget_s, device=self._place)

    @property
    def digest(self) -> str:
        """Hexadecimal digest of the pattern."""
        return self._matrix.pattern.hash

    def plan(self, width: int | Sequence[int], *, backward: bool = False, given_values: bool = False) -> None:
        """Plan products of some widths now.

        Parameters
        ----------
        width : int or sequence of int
            J.
        backward : bool
            Plan what their gradients need, too.
        given_values : bool
            Plan products to which values are given, in the place of those with the matrix's own.
        """
        widths = widths_of(width)
        for kind in ("spmm", "turned", "sddmm") if backward else ("spmm",):
            if widths:
                fixed = not given_values or kind == "sddmm"
                made = self._operator(kind, self.dtype, self._place, widths, fixed)
                for one in widths:
                    made.plan(one)

    def spmm(self, b: Tensor, values: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
        """Compute C = A B; differentiable in ``b`` and ``values``.

        Parameters
        ----------
        b : (K, J)
            Of the matrix's dtype; autocast converts it.
        values : (nnz,), optional
            Values of A in the order of `values`, on the device of ``b``; by default the matrix's own, without gradient.
            A CUDA graph captures such a call once one was made before the capture.
        out : (I, J), optional
            Written and returned: row-major, contiguous, of the result's type and device, in memory of its own. As with
            PyTorch's own ``out``, no gradient is recorded.

        Returns
        -------
        Tensor
            ``out``, or a new tensor (I, J) on the device of ``b``.

        Raises
        ------
        OperandError
            A tensor does not fit.
        ProblemError
            ``out`` is given, and a gradient would be lost.
        """
        if values is None and out is None and not torch.compiler.is_compiling():
            found = self._native.spmm(self, b)
            if found is not NotImplemented:
                return found
        b, values = self._in_type(b, values)
        if out is None:
            return spmm(values, b, self.handle, False)
        _check_out(out, b, values)
        spmm_out(values, b, self.handle, False, out)
        return out

    def __matmul__(self, b: Tensor) -> Tensor:
        """Compute ``A @ b``, as `spmm` does; `torch.compile` traces `spmm` alone."""
        return self.spmm(b)

    def sddmm(self, x: Tensor, y: Tensor, values: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
        """Compute ``D[i, k] = sum_j X[i, j] Y[k, j]`` at A's non-zeros; differentiable in everything.

        Parameters
        ----------
        x, y : (I, J), (K, J)
            Of the matrix's dtype; autocast converts them.
        values : (nnz,), optional
            Factors of the results.
        out : (nnz,), optional
            As in `spmm`.

        Returns
        -------
        Tensor
            ``out``, or a new tensor (nnz,), in the order of `values`.

        Raises
        ------
        OperandError, ProblemError
            As `spmm`.
        """
        x, y = self._in_type(x, y)
        if values is not None and tuple(values.shape) != (self.nnz,):
            raise OperandError(f"expected values of shape ({self.nnz},), found {tuple(values.shape)}")
        if out is None:
            found = sddmm(x, y, self.handle)
            return found if values is None else found * values
        _check_out(out, x, y, values)
        sddmm_out(x, y, self.handle, out)
        return out if values is None else out.mul_(values)

    def aggregate(self, b: Tensor, reduce: Literal["sum", "mean"] = "sum", values: Tensor | None = None) -> Tensor:
        """Add up the rows of ``b`` that a row of A names, each times A's value, or take their mean.

        Parameters
        ----------
        b, values
            As in `spmm`.
        reduce : {"sum", "mean"}
            The mean divides by the non-zeros of the row; a row without any gives zeros.

        Returns
        -------
        Tensor
            (I, J).
        """
        one_of("reduce", reduce, ("sum", "mean"))
        total = self.spmm(b, values)
        if reduce == "sum":
            return total
        return total / self._copy("lengths", total.device).clamp(min=1).to(total.dtype)[:, None]

    def _in_type(self, first: Tensor, second: Tensor | None) -> tuple[Tensor, Any]:
        """Convert as autocast asks; without it another type is refused, as is what is no tensor of a known place."""
        for one in (first,) if second is None else (first, second):
            if not isinstance(one, Tensor):
                raise _no_tensor(one)
            refuse_nested(one, "spmark.torch")
        place = first.device.type
        try:
            converts = torch.is_autocast_enabled(place)
        except RuntimeError as error:  # PyTorch itself computes nothing there
            raise OperandError(f"expected a tensor on cpu or cuda, found one on {place}: copy it there") from error
        if converts:
            wanted = torch.get_autocast_dtype(place)
            return first.to(wanted), second if second is None else second.to(wanted)
        if first.dtype is not self.dtype:
            raise OperandError(f"expected a tensor of {self.dtype}, as A's values are, found {first.dtype}: convert it")
        return first, second

    def _operator(
        self, kind: str, dtype: torch.dtype, place: str, widths: Sequence[int], fixed: bool
    ) -> CompiledOperator:
        """Give the operator of one kind; where there is none yet, it is planned for some widths."""
        key = (kind, dtype, place, fixed)
        known = self._operators.get(key)
        if known is not None:
            return known
        with self._lock:
            if key in self._operators:
                return self._operators[key]
            # Without a GPU, PyTorch's question after a capture fails, and compiling says what is missing.
            if place == "cuda" and torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
                raise BuildError(
                    f"expected {kind} to be planned while a stream captures a graph: call plan(width, backward=True) "
                    "of the matrix before the capture"
                )
            op = Op.SDDMM if kind == "sddmm" else Op.SPMM
            made = compile_operator(
                self._turned if kind == "turned" else self._matrix,
                op.value,
                width=widths,
                use=names_with(self._use, op),
                dtype=dtype,
                values="constant" if fixed else "variable",
                device=place,
                budget_s=self._budget_s,
            )
            self._operators[key] = made
            return made

    def multiply(self, values: Tensor | None, b: Tensor, transposed: bool, out: Tensor | None = None) -> Tensor:
        """Compute A B or A^T B without gradients; what `spmm` and gradients end in."""
        kind, b = "turned" if transposed else "spmm", _detached(b)
        made = self._operator(kind, b.dtype, b.device.type, [b.shape[-1]], fixed=values is None)
        if values is None:
            found: Tensor = made(b, out=out)
            if b.is_cuda and b.dtype is self.dtype:  # other types are autocast's, and refused without it
                self._native.learn(made, b, self.shape[transposed], transposed)
        else:
            values = _detached(values)
            if transposed:
                values = values[self._copy("origins", values.device)]
            found = made.compute_with(values, b, out=out)
        _check_deterministic(made, b.shape[-1])
        return found

    def sample(self, x: Tensor, y: Tensor, out: Tensor | None = None) -> Tensor:
        """Compute X Y^T at A's non-zeros without gradients; what `sddmm` and gradients end in."""
        made = self._operator("sddmm", x.dtype, x.device.type, [x.shape[-1]], fixed=True)
        found: Tensor = made(_detached(x), _detached(y), out=out)
        _check_deterministic(made, x.shape[-1])
        return found

    def _copy(self, name: Literal["origins", "lengths"], device: torch.device) -> Tensor:
        """Copy an array to a device once: where the transpose's values come from, or the non-zeros of each row."""
        if (name, device) not in self._copies:
            self._copies[name, device] = self._copies[name, torch.device("cpu")].to(device)
        return self._copies[name, device]


def _restored(  # noqa: PLR0917
    shape: tuple[int, int], indptr: Any, indices: Any, values: Any, dtype: str, use: Any, budget_s: Any, device: Any
) -> SparseMatrix:
    matrix = OwnedMatrix.checked(shape, indptr, indices, values, ElementType(dtype))
    return SparseMatrix(matrix, use=use, budget_s=budget_s, device=device)


def names_with(use: str | Sequence[str], op: Op) -> str | list[str]:
    """Give the names of ``use`` that have an operator, or ``"auto"`` where none has it."""
    return [name for name in loaded(use) if op in create(name).ops] or "auto"


def _check_deterministic(made: CompiledOperator, width: int) -> None:
    """Follow `torch.use_deterministic_algorithms`."""
    if not torch.are_deterministic_algorithms_enabled() or made.is_deterministic(width):
        return
    told = "expected a deterministic plan, found one that adds up in any order: pass use=['direct', 'rowsplit']"
    if not torch.is_deterministic_algorithms_warn_only_enabled():
        raise BuildError(told)
    warnings.warn(told, stacklevel=2)


def _detached(tensor: Tensor) -> Tensor:
    """Give a tensor that requires no gradient, without a copy: a compiled operator copies one that does."""
    return tensor.detach() if tensor.requires_grad else tensor


def _no_tensor(found: Any) -> OperandError:
    kind = f"{type(found).__module__}.{type(found).__qualname__}"
    return OperandError(f"expected a tensor of PyTorch, found a {kind}: torch.as_tensor(...) makes one of an array")


def _check_out(out: Any, *tensors: Tensor | None) -> None:
    """Refuse an ``out`` that is no tensor, or where a gradient would be lost."""
    if not isinstance(out, Tensor):
        raise _no_tensor(out)
    if any(tensor is not None and loses_gradient(tensor, torch) for tensor in (out, *tensors)):
        raise ProblemError(
            "expected tensors without a gradient beside out, found one that requires it or has a tangent: leave out "
            "away, or work inside of torch.no_grad()"
        )


class SparseLinear(torch.nn.Module):  # type: ignore[misc]
    """A linear layer whose weight has a fixed sparse pattern: ``y = x W^T + bias``.

    Parameters
    ----------
    weight : sparse matrix (out, in)
        As `SparseMatrix` takes it; its values are the initial ones of the parameter ``values``.
    bias : bool
        Whether a bias, zeros at first, is added.
    width : int or sequence of int
        Rows of x in all, for which products are planned at once, with their gradients.
    **how
        Further arguments of `SparseMatrix`.

    Attributes
    ----------
    values : Parameter
        (nnz,), in the order of `SparseMatrix.values`. The state of the module holds it, and a digest of the pattern:
        values of another pattern are refused.
    bias : Parameter or None
        (out,).
    """

    def __init__(self, weight: Any, bias: bool = True, *, width: int | Sequence[int] = (), **how: Any) -> None:
        super().__init__()
        self.matrix = SparseMatrix(weight, **how)
        self.matrix.plan(width, backward=True, given_values=True)
        self.values = torch.nn.Parameter(self.matrix.values)
        rows = self.matrix.shape[0]
        self.bias = torch.nn.Parameter(torch.zeros(rows, dtype=self.matrix.dtype)) if bias else None

    def _apply(self, fn: Any, recurse: bool = True) -> SparseLinear:
        """Let the matrix follow `half`, `double` and the like."""
        super()._apply(fn, recurse)
        if self.values.dtype is not self.matrix.dtype:
            self.matrix = self.matrix.to_dtype(self.values.dtype)
        return self

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "pattern"] = torch.tensor(list(bytes.fromhex(self.matrix.digest)), dtype=torch.uint8)

    def _load_from_state_dict(  # noqa: PLR0917
        self, state_dict: Any, prefix: str, metadata: Any, strict: bool, missing: Any, unexpected: Any, errors: Any
    ) -> None:
        found = state_dict.pop(prefix + "pattern", None)  # states of older versions lack it
        digest = None if found is None else bytes(found.tolist()).hex()
        if digest not in (None, self.matrix.digest):
            told = f"expected values of the pattern {self.matrix.digest[:16]}, found those of {digest[:16]}"
            errors.append(f"{prefix}pattern: {told}: make the layer of the matrix that was saved")
            return
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing, unexpected, errors)

    def forward(self, x: Tensor) -> Tensor:
        """Give ``x W^T + bias``, (..., out), for x (..., in)."""
        num_out, num_in = self.matrix.shape
        rows = x.reshape(-1, x.shape[-1])
        if rows.shape[0]:
            y = self.matrix.spmm(rows.T, self.values).T
        else:  # the width of a product is at least 1; this one is empty, and has gradients
            y = (rows @ self.values.sum().expand(num_in, 1)).expand(-1, num_out)
        y = y.reshape(*x.shape[:-1], num_out)
        return y if self.bias is None else y + self.bias
