"""The operators of `torch.library` behind `spmark.torch`: products, their gradients, and their shapes for tracing.

Two products are enough, since each is in the gradient of the other. With C = A B and a gradient G of C, the gradient
of B is A^T G, and that of A's values is G B^T at A's non-zeros. With D = X Y^T at A's non-zeros and a gradient H of D,
the gradients of X and Y are H Y and H^T X, where H has A's pattern. No gradient is a dense matrix of A's shape.
Derivatives of forward mode are products, too: each product is linear in every tensor that it takes.

Each product has a twin that writes ``out``, which is declared as mutated and has no gradient.
"""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import torch  # pyright: ignore[reportMissingImports]
from torch import Tensor  # pyright: ignore[reportMissingImports]
from torch._library.autograd import Info, make_autograd_impl  # pyright: ignore[reportMissingImports]
from torch.autograd import forward_ad  # pyright: ignore[reportMissingImports]

from spmark.impls.core.errors import OperandError

if TYPE_CHECKING:
    from spmark.impls.operator.pytorch import SparseMatrix
    from spmark.impls.operator.relations import RelationalMatrix


_MATRICES: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""Matrices and maps by the handle that operators are given: `torch.library` passes tensors and numbers alone."""
_LIBRARY = torch.library.Library("spmark", "FRAGMENT")
_HANDLE_BITS = 62
"""Handles are drawn, so that a program that another process exported names no matrix of this one."""
_USUAL = (
    *("CPU", "AutogradCPU", "AutocastCPU", "CUDA", "AutogradCUDA", "AutocastCUDA"),
    *("BackendSelect", "ADInplaceOrView"),
)
"""Keys of PyTorch's dispatcher that plain tensors and threads have."""
_UNUSUAL = ~reduce(or_, [torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, one)) for one in _USUAL]).raw_repr()
_PLAIN = (Tensor, torch.nn.Parameter)


def register(matrix: SparseMatrix | RelationalMatrix) -> int:
    """Give the handle by which operators find a matrix or a map while it lives."""
    handle = secrets.randbits(_HANDLE_BITS)
    _MATRICES[handle] = matrix
    return handle


def matrix_of(handle: int) -> Any:
    """Give the matrix or the map of a handle; raises OperandError where there is none."""
    found = _MATRICES.get(handle)
    if found is None:
        raise OperandError(f"expected the handle of a living SparseMatrix or RelationalMatrix, found {handle}: keep it")
    return found


def is_plain(*tensors: Tensor | None) -> bool:
    """Tell whether an operator would only call its kernel, which then may be called without it.

    An operator does more where a gradient or a tangent is recorded, for subclasses, and where a trace, a transform or a
    mode has to see it. Autocast leaves the operators alone.
    """
    if torch.compiler.is_compiling():  # which cannot trace what follows
        return False
    if forward_ad._current_level >= 0 or torch._C._is_torch_function_mode_enabled():
        return False
    records, keys = torch.is_grad_enabled(), torch._C._dispatch_tls_local_include_set().raw_repr()
    for one in tensors:
        if one is not None:
            if type(one) not in _PLAIN or (records and one.requires_grad):
                return False
            keys |= torch._C._dispatch_keys(one).raw_repr()
    return not keys & _UNUSUAL


def _spmm_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    values, b, handle, ctx.transposed = inputs
    ctx.matrix = matrix_of(handle)  # the gradient outlives the caller's matrix
    ctx.save_for_backward(values, b if ctx.needs_input_grad[0] else None)  # the gradient of B needs A alone


def _spmm_gradient(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
    values, b = ctx.saved_tensors
    handle, of_values, of_b = ctx.matrix.handle, None, None
    grad = grad.contiguous()  # once for both products
    if ctx.needs_input_grad[0]:
        of_values = sddmm(b, grad, handle) if ctx.transposed else sddmm(grad, b, handle)
    if ctx.needs_input_grad[1]:
        of_b = spmm(values, grad, handle, not ctx.transposed)
    return of_values, of_b, None, None


def _sddmm_gradient(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    x, y = ctx.saved_tensors
    handle, grad = ctx.matrix.handle, grad.contiguous()
    of_x = spmm(grad, y, handle, False) if ctx.needs_input_grad[0] else None
    of_y = spmm(grad, x, handle, True) if ctx.needs_input_grad[1] else None
    return of_x, of_y, None


def _save_all(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, handle = inputs
    ctx.matrix = matrix_of(handle)
    ctx.save_for_backward(*tensors)


def _turned_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.matrix = matrix_of(inputs[1])


def _turned_gradient(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    return turned(grad, ctx.matrix.T.handle), None


def _derivative(name: str, matrix: RelationalMatrix, *, values: Any, x: Any, w: Any, y: Any) -> Tensor:
    """Give a derivative of the sum over relations and edges of A_r[i, j] x_j W_r y_i, which is linear in each."""
    if name == "values":
        return project(x, w, y, matrix.handle)
    if name == "w":
        return correlate(values, x, y, matrix.handle)
    if name == "y":
        return convolve(values, x, w, matrix.handle)
    of_edges = None if values is None else turned(values, matrix.handle)
    return convolve(of_edges, y, w.transpose(1, 2), matrix.T.handle)


def _gradient_beside(result: str) -> Callable[[Any, Tensor], tuple[Tensor | None, ...]]:
    """Give the gradient of the product that is the derivative by ``result``: the other derivatives at its gradient."""
    names = [name for name in ("values", "x", "w", "y") if name != result]

    def gradient(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        given = dict(zip(names, ctx.saved_tensors, strict=True)) | {result: grad}
        needed = zip(names, ctx.needs_input_grad, strict=False)
        return *(_derivative(name, ctx.matrix, **given) if needs else None for name, needs in needed), None

    return gradient


def _defined(
    name: str, schema: str, *, compute: Any, shape: Any, gradient: Any, context: Any = _save_all, served: bool = False
) -> Any:
    """Define an operator without the checks of `torch.library.custom_op`, which take 2 us of each call.

    An extension serves some for tensors of a GPU (`spmark.impls.operator.native`), and finds Python's kernels of these
    by a second name.
    """
    _LIBRARY.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
    torch.library.register_fake(f"spmark::{name}", shape, lib=_LIBRARY)
    operator = getattr(torch.ops.spmark, name).default
    # `torch.library.register_autograd` would register this kernel alone, which drops tangents without a word.
    backward = make_autograd_impl(operator, Info(gradient, context))

    def differentiable(keyset: Any, *given: Any) -> Tensor:
        if forward_ad._current_level < 0:
            return backward(keyset, *given)
        duals = [forward_ad.unpack_dual(one) if isinstance(one, Tensor) else (one, None) for one in given]
        primals = [primal for primal, _ in duals]
        tangents = [
            operator(*primals[:at], tangent, *primals[at + 1 :])
            for at, (_, tangent) in enumerate(duals)
            if tangent is not None
        ]
        with forward_ad._set_fwd_grad_enabled(False):  # of this call; what it saves for a gradient keeps its tangents
            output = backward(keyset, *given)
        return forward_ad.make_dual(output, sum(tangents)) if tangents else output

    if served:
        _LIBRARY.define(f"_{name}{schema}")
    for one in (name, f"_{name}")[: 1 + served]:
        _LIBRARY.impl(one, compute, "CompositeExplicitAutograd")
        _LIBRARY.impl(one, differentiable, "Autograd", with_keyset=True)
    return operator


spmm = _defined(
    "spmm",
    "(Tensor? values, Tensor b, int handle, bool transposed) -> Tensor",
    compute=lambda values, b, handle, transposed: matrix_of(handle).multiply(values, b, transposed),
    shape=lambda values, b, handle, transposed: b.new_empty((matrix_of(handle).shape[transposed], b.shape[1])),
    gradient=_spmm_gradient,
    context=_spmm_context,
    served=True,
)
"""Computes A B or A^T B, (I, J) or (K, J), for the matrix of a handle."""
sddmm = _defined(
    "sddmm",
    "(Tensor x, Tensor y, int handle) -> Tensor",
    compute=lambda x, y, handle: matrix_of(handle).sample(x, y),
    shape=lambda x, y, handle: x.new_empty((matrix_of(handle).nnz,)),
    gradient=_sddmm_gradient,
    served=True,
)
"""Computes X Y^T at A's non-zeros, (nnz,), for the matrix of a handle."""

convolve = _defined(
    "convolve",
    "(Tensor? values, Tensor x, Tensor w, int handle) -> Tensor",
    compute=lambda values, x, w, handle: matrix_of(handle).multiply(values, x, w),
    shape=lambda values, x, w, handle: x.new_empty((matrix_of(handle).matrix.num_rows, w.shape[2])),
    gradient=_gradient_beside("y"),
)
"""Computes the sum over relations r of A_r X W_r, (I, width_out), for the relational matrix of a handle."""
correlate = _defined(
    "correlate",
    "(Tensor? values, Tensor x, Tensor y, int handle) -> Tensor",
    compute=lambda values, x, y, handle: matrix_of(handle).correlate(values, x, y),
    shape=lambda values, x, y, handle: x.new_empty((matrix_of(handle).matrix.relations, x.shape[1], y.shape[1])),
    gradient=_gradient_beside("w"),
)
"""Computes (A_r X)^T Y for each relation r, (R, width_in, width_out), for the relational matrix of a handle."""
project = _defined(
    "project",
    "(Tensor x, Tensor w, Tensor y, int handle) -> Tensor",
    compute=lambda x, w, y, handle: matrix_of(handle).project(x, w, y),
    shape=lambda x, w, y, handle: x.new_empty((matrix_of(handle).matrix.nnz,)),
    gradient=_gradient_beside("values"),
)
"""Computes x_j W_r y_i for each edge (i, j) of relation r, (nnz,), for the relational matrix of a handle."""
turned = _defined(
    "turned",
    "(Tensor values, int handle) -> Tensor",
    compute=lambda values, handle: matrix_of(handle).turned(values),
    shape=lambda values, handle: torch.empty_like(values, memory_format=torch.contiguous_format),
    gradient=_turned_gradient,
    context=_turned_context,
)
"""Gives values, (nnz,), in the order of the edges of the transpose, for the relational matrix of a handle."""


@torch.library.custom_op("spmark::softmax", mutates_args=())  # type: ignore[untyped-decorator]
def softmax(scores: Tensor, handle: int) -> Tensor:
    """Compute the softmax of each row's non-zeros, (nnz,), for the matrix of a handle."""
    found: Tensor = matrix_of(handle).over_rows(scores)
    return found


@torch.library.custom_op("spmark::softmax_gradient", mutates_args=())  # type: ignore[untyped-decorator]
def softmax_gradient(shares: Tensor, grad: Tensor, handle: int) -> Tensor:
    """Compute the gradient of the scores from the softmax and its gradient; there is no gradient of this one."""
    found: Tensor = matrix_of(handle).over_rows(shares, grad)
    return found


@softmax.register_fake  # type: ignore[untyped-decorator]
@softmax_gradient.register_fake  # type: ignore[untyped-decorator]
def _like_the_first(first: Tensor, *others: Any) -> Tensor:
    return torch.empty_like(first)


def _softmax_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.matrix = matrix_of(inputs[1])
    ctx.save_for_backward(output)


def _softmax_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    return softmax_gradient(ctx.saved_tensors[0], grad.contiguous(), ctx.matrix.handle), None


softmax.register_autograd(_softmax_backward, setup_context=_softmax_context)


@torch.library.custom_op(  # type: ignore[untyped-decorator]
    "spmark::spmm_out",
    mutates_args=("out",),
    schema="(Tensor? values, Tensor b, int handle, bool transposed, Tensor(a!) out) -> ()",
)
def spmm_out(values: Tensor | None, b: Tensor, handle: int, transposed: bool, out: Tensor) -> None:
    """Compute `spmm` into ``out``."""
    matrix_of(handle).multiply(values, b, transposed, out)


@torch.library.custom_op(  # type: ignore[untyped-decorator]
    "spmark::sddmm_out", mutates_args=("out",), schema="(Tensor x, Tensor y, int handle, Tensor(a!) out) -> ()"
)
def sddmm_out(x: Tensor, y: Tensor, handle: int, out: Tensor) -> None:
    """Compute `sddmm` into ``out``."""
    matrix_of(handle).sample(x, y, out)


@spmm_out.register_fake  # type: ignore[untyped-decorator]
@sddmm_out.register_fake  # type: ignore[untyped-decorator]
def _nothing_new(*arguments: Any) -> None:
    """Make no tensor: ``out`` is there already."""
