"""Products of sparse matrices for PyTorch, with gradients; reached as `spmark.torch`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Literal

import torch  # pyright: ignore[reportMissingImports]
from torch import Tensor  # pyright: ignore[reportMissingImports]

from spmark.impls.core.errors import BuildError, OperandError, ProblemError
from spmark.impls.core.problem import DType, Op
from spmark.impls.operator.arrays import refuse_nested
from spmark.impls.operator.choose import widths_of
from spmark.impls.operator.compiled import CompiledOperator
from spmark.impls.operator.matrices import ElementType, OwnedMatrix, loses_gradient
from spmark.impls.operator.native import NativeCalls
from spmark.impls.operator.sparse import Kind, Operators, Signs
from spmark.impls.operator.torchops import is_plain, register, sddmm, sddmm_out, softmax, spmm, spmm_out

__all__ = ["SparseLinear", "SparseMatrix"]
_TYPES = tuple(getattr(torch, one) for one in ElementType)


class SparseMatrix(Signs):
    """A sparse matrix whose products have gradients.

    Products are operators of `torch.library`: `torch.compile` traces them without a break of its graph, and a gradient
    of a gradient works. Exported programs cannot hold a matrix, which lives in the process. ``A @ b`` is `spmm` by its
    sign, which `torch.compile` does not trace.

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

    shown = "spmark.torch.SparseMatrix"

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
            matrix = OwnedMatrix.of(a, dtype)
        given = a[0] if isinstance(a, tuple) else a
        place = device or (given.device.type if isinstance(given, Tensor) else "cpu")
        self._set(Operators(matrix, use, budget_s), False, place)
        self.plan(width, backward=backward)

    def _set(self, operators: Operators, turned: bool, device: Any) -> None:
        super()._set(operators, turned, device)
        self.dtype: torch.dtype = getattr(torch, str(self._matrix.dtype))
        self._indptr: dict[torch.device, Tensor] = {}
        self.handle = register(self)
        self._native = NativeCalls(self.handle)

    @property
    def values(self) -> Tensor:
        """A copy of A's values on the host, (nnz,), in the order of its CSR with sorted columns."""
        kept = torch.from_numpy(self._matrix.values.copy())
        return kept.view(torch.bfloat16) if self.dtype is torch.bfloat16 else kept

    def __deepcopy__(self, memo: Any) -> SparseMatrix:
        """Give the matrix itself, which never changes: copies of a module share it."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Let a matrix travel with a module that is saved: arrays and arguments, no plans."""
        how = self._operators
        return partial(SparseMatrix, use=how.use, budget_s=how.budget_s, device=self._device), (self._matrix,)

    def to_dtype(self, dtype: torch.dtype) -> SparseMatrix:
        """Give the matrix with values of another type; nothing is planned yet."""
        how = self._operators
        return SparseMatrix(self._matrix, dtype=dtype, use=how.use, budget_s=how.budget_s, device=self._device)

    @property
    def digest(self) -> str:
        """Hexadecimal digest of the pattern."""
        return self._matrix.pattern.hash

    def plan(self, width: int | Sequence[int], *, backward: bool = False, given_values: bool = False) -> None:
        """Plan products of some widths now, on a GPU for PyTorch's current one.

        Parameters
        ----------
        width : int or sequence of int
            J.
        backward : bool
            Plan what their gradients need, too.
        given_values : bool
            Plan products to which values are given, in the place of those with the matrix's own.
        """
        kinds = [(Op.SPMM, False, not given_values)]
        if backward:
            kinds += [(Op.SPMM, True, not given_values), (Op.SDDMM, False, True)]
        gpu = torch.cuda.current_device() if self._device == "cuda" and torch.cuda.is_available() else 0
        widths, operators = widths_of(width), []
        for kind in kinds if widths else ():
            operators.append(self._operator(*kind, self.dtype, (self._device, gpu)))
            for one in widths:
                operators[-1].begin(one)
        for step in (CompiledOperator.choose, CompiledOperator.plan):
            for operator in operators:
                for one in widths:
                    step(operator, one)

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
            plain = is_plain(values, b)
            return self.multiply(values, b, False) if plain else spmm(values, b, self.handle, False)
        _check_out(out, b, values)
        spmm_out(values, b, self.handle, False, out)
        return out

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

    def softmax(self, scores: Tensor) -> Tensor:
        """Compute the softmax of each row's non-zeros, as attention has it; differentiable once, in reverse mode.

        Parameters
        ----------
        scores : (nnz,)
            In the order of `values`, of any of the four types. One of minus infinity has no part of its row.

        Returns
        -------
        Tensor
            (nnz,), new. float64 is computed in float64, all else in float32.

        Raises
        ------
        OperandError
            The scores do not fit.
        ProblemError
            The scores have a tangent of forward mode.
        """
        if not isinstance(scores, Tensor):
            raise _no_tensor(scores)
        refuse_nested(scores, "spmark.torch")
        if tuple(scores.shape) != (self.nnz,) or scores.dtype not in _TYPES:
            raise OperandError(f"expected scores of shape ({self.nnz},), found {tuple(scores.shape)} of {scores.dtype}")
        if not torch.compiler.is_compiling() and torch.autograd.forward_ad.unpack_dual(scores).tangent is not None:
            raise ProblemError("softmax: expected scores without a tangent of forward mode, found one that has it")
        found: Tensor = softmax(scores.contiguous(), self.handle)
        return found

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
        self, op: Op, transposed: bool, fixed: bool, dtype: torch.dtype, where: tuple[str, int]
    ) -> CompiledOperator:
        """Give the operator of the matrix, or of its transpose, on a kind of device and its number."""
        place, gpu = where
        kind = Kind(op, transposed != self._turned, fixed, dtype, place, transposed and not fixed, gpu)
        # Without a GPU, PyTorch's question after a capture fails, and compiling says what is missing.
        if kind not in self._operators.made and place == "cuda" and torch.cuda.is_available():
            if torch.cuda.is_current_stream_capturing():
                raise BuildError(
                    f"expected {op} to be planned while a stream captures a graph: call plan(width, backward=True) of "
                    "the matrix before the capture"
                )
        return self._operators.find(kind)

    def multiply(self, values: Tensor | None, b: Tensor, transposed: bool, out: Tensor | None = None) -> Tensor:
        """Compute A B or A^T B without gradients; what `spmm` and gradients end in."""
        b = _detached(b)
        with _on_gpu_of(b):
            made = self._operator(Op.SPMM, transposed, values is None, b.dtype, _where(b))
            if values is None:
                found: Tensor = made(b, out=out)
                self._learn(made, int(transposed), b)
            else:
                found = made.compute_with(_detached(values), b, out=out)
        _check_deterministic(made, b.shape[-1])
        return found

    def sample(self, x: Tensor, y: Tensor, out: Tensor | None = None) -> Tensor:
        """Compute X Y^T at A's non-zeros without gradients; what `sddmm` and gradients end in."""
        with _on_gpu_of(x):
            made = self._operator(Op.SDDMM, False, True, x.dtype, _where(x))
            found: Tensor = made(_detached(x), _detached(y), out=out)
            self._learn(made, 2, x)
        _check_deterministic(made, x.shape[-1])
        return found

    def _learn(self, made: CompiledOperator, product: int, first: Tensor) -> None:
        if first.is_cuda and first.dtype is self.dtype:  # other types are autocast's, and refused without it
            self._native.learn(made.launches, product, first.shape[1], first)

    def over_rows(self, *given: Tensor) -> Tensor:
        """Compute the softmax of scores, or the gradient of the scores of a softmax and its gradient."""
        first = _detached(given[0])
        if first.device not in self._indptr:
            self._indptr[first.device] = torch.from_numpy(self._matrix.pattern.indptr).to(first.device)
        indptr = self._indptr[first.device]
        if first.is_cuda and first.dtype is not torch.float64:
            from spmark.impls.kernels.row_softmax import softmax_rows
            from spmark.impls.operator.borrowed import current_target
            from spmark.impls.operator.gpu import adopted, on_stream_of

            arrays = [*map(_detached, given), torch.empty_like(first)]
            with _on_gpu_of(first), on_stream_of(arrays):
                dtype = DType(str(first.dtype).partition(".")[2])
                softmax_rows(current_target(), dtype, adopted(indptr), tuple(map(adopted, arrays)))
            return arrays[-1]

        def reduced(values: Tensor, how: str) -> Tensor:
            found = torch.segment_reduce(values, how, offsets=indptr.long(), unsafe=True)
            return found.repeat_interleave(indptr.diff(), output_size=len(values))  # without reading the size back

        exact = [one if one.dtype is torch.float64 else one.float() for one in map(_detached, given)]
        if len(exact) == 2:
            shares, grad = exact
            return (shares * (grad - reduced(shares * grad, "sum"))).to(first.dtype)
        raised = (exact[0] - reduced(exact[0], "max")).exp()
        return (raised / reduced(raised, "sum")).to(first.dtype)


def _check_deterministic(made: CompiledOperator, width: int) -> None:
    """Follow `torch.use_deterministic_algorithms`."""
    if not torch.are_deterministic_algorithms_enabled() or made.is_deterministic(width):
        return
    told = "expected a deterministic plan, found one that adds up in any order: pass use=['direct', 'rowsplit']"
    if not torch.is_deterministic_algorithms_warn_only_enabled():
        raise BuildError(told)
    warnings.warn(told, stacklevel=2)


def _where(tensor: Tensor) -> tuple[str, int]:
    return tensor.device.type, max(tensor.get_device(), 0)


def _on_gpu_of(tensor: Tensor) -> AbstractContextManager[Any]:
    """Make a tensor's GPU the current one, where plans are built."""
    elsewhere = tensor.is_cuda and tensor.get_device() != torch.cuda.current_device()
    return torch.cuda.device(tensor.get_device()) if elsewhere else nullcontext()


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
    in_features, out_features : int
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
        self.out_features, self.in_features = self.matrix.shape
        self.bias = torch.nn.Parameter(torch.zeros(self.out_features, dtype=self.matrix.dtype)) if bias else None

    @classmethod
    def from_linear(cls, layer: torch.nn.Linear, **how: Any) -> SparseLinear:
        """Make the layer of a pruned dense one: the non-zeros of its weight, its bias, its device.

        Parameters
        ----------
        layer : torch.nn.Linear
            Left as it is; nothing is shared.
        **how
            Further arguments of `SparseLinear`.

        Raises
        ------
        OperandError
            The layer is another one.
        """
        if not isinstance(layer, torch.nn.Linear):
            raise OperandError(f"expected a torch.nn.Linear, found a {type(layer).__qualname__}: pass a sparse weight")
        weight = layer.weight.detach()
        made = cls(weight.to_sparse(), layer.bias is not None, **how)
        if made.bias is not None:
            made.bias.data.copy_(layer.bias)
        made.to(weight.device)
        return made

    def extra_repr(self) -> str:
        """Say what the layer is, as PyTorch prints it."""
        sizes = f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
        return (
            f"{sizes}, non-zeros={self.matrix.nnz:,} ({self.matrix.nnz / (self.in_features * self.out_features):.1%})"
        )

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
        rows = x.reshape(-1, x.shape[-1])
        if rows.shape[0]:
            y = self.matrix.spmm(rows.T, self.values).T
        else:  # the width of a product is at least 1; this one is empty, and has gradients
            y = (rows @ self.values.sum().expand(self.in_features, 1)).expand(-1, self.out_features)
        y = y.reshape(*x.shape[:-1], self.out_features)
        return y if self.bias is None else y + self.bias
