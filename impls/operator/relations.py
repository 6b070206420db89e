"""Products with matrices of several relations for PyTorch, with gradients; reached as `spmark.torch`.

Everything follows from one number, F = sum over relations r and edges (i, j) of A_r[i, j] x_j W_r y_i, which is linear
in A's values, in X, in W and in Y. Its derivatives are three products: by Y the operator itself, by W a matrix of each
relation, by A's values a number for each edge. The derivative by X is the operator on the transposed matrices. Hence
these products are closed under differentiation, and gradients of gradients need no more.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch import Tensor  # pyright: ignore[reportMissingImports]

from spmark.impls.auto.race import Choice, first
from spmark.impls.core.errors import BuildError, OperandError
from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import DType
from spmark.impls.core.relational import RelationalCsr, RelationalProblem
from spmark.impls.operator.arrays import TorchTensors
from spmark.impls.operator.extension import LAUNCHER
from spmark.impls.operator.native import NativeCalls
from spmark.impls.operator.torchops import convolve, is_plain, register
from spmark.impls.operator.turns import Turns
from spmark.impls.runtime.device import find
from spmark.impls.runtime.target import open_target

if TYPE_CHECKING:
    from spmark.impls.operator.launches import Launches

_TENSORS = TorchTensors(torch)
_DTYPES = {torch.float32: DType.FLOAT32, torch.float16: DType.FLOAT16, torch.bfloat16: DType.BFLOAT16}


class _Planned(NamedTuple):
    plan: Any
    turns: Turns
    launches: Launches | None
    """The extension's part, where there is one: it makes the launches of most plans."""


class RelationalMatrix:
    """The matrices A_0 ... A_(R-1) of all relations of a graph, whose product with X and W has gradients.

    A product is planned at the first call of its widths and type; from the second call on it may be captured into a
    CUDA graph, which has workspaces of its own as that of a `CompiledOperator` has.

    Parameters
    ----------
    matrix : RelationalCsr
        `RelationalCsr.of_edges` makes one of edges with their types.
    """

    in_order: tuple[tuple[str, Config], ...] = (("rgms_hyb", {}), ("gather_gemm_scatter", {}))
    """Implementations with their tunables that a product may take; the first that has its problem does."""

    def __init__(self, matrix: RelationalCsr) -> None:
        self.matrix = matrix
        self.handle = register(self)
        self._native = NativeCalls(self.handle)
        self._plans: dict[Any, _Planned] = {}
        self._edges: dict[torch.device, list[tuple[Tensor, Tensor, Tensor]]] = {}
        self._origins: dict[torch.device, Tensor] = {}

    def __deepcopy__(self, memo: Any) -> RelationalMatrix:
        """Give the matrices themselves, which never change: copies of a module share them."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Let the matrices travel with a module that is saved, without plans."""
        return type(self), (self.matrix,)

    @cached_property
    def T(self) -> RelationalMatrix:
        """The matrices A_r^T; values given to its products are in the order of its own edges."""
        made = type(self)(self.matrix.transposed())
        made.__dict__["T"] = self
        return made

    @property
    def values(self) -> Tensor:
        """A's values on the host, (nnz,) float32, in the order of `RelationalCsr.wide`."""
        return torch.from_numpy(self.matrix.wide.values.astype(np.float32))

    def rgms(self, x: Tensor, w: Tensor, values: Tensor | None = None) -> Tensor:
        """Compute Y, the sum over relations r of A_r X W_r; differentiable in everything.

        Parameters
        ----------
        x : (K, width_in)
        w : (R, width_in, width_out)
        values : (nnz,), optional
            A's values in the order of `values`, on the device of ``x``; by default the matrix's own, without gradient.
            A product with given values is PyTorch's, one relation after the other.

        Returns
        -------
        Tensor
            (I, width_out).

        Raises
        ------
        OperandError
            A tensor does not fit.
        BuildError
            No implementation could be built.
        """
        if values is None and not torch.compiler.is_compiling():
            found = self._native.rgms(x, w)
            if found is not NotImplemented:
                return found
        matrix = self.matrix
        if w.dim() != 3 or (w.shape[0], matrix.num_cols, w.shape[1]) != (matrix.relations, *x.shape):
            raise OperandError(
                f"expected weights of {matrix.relations} relations (of a map: offsets) and features of "
                f"{matrix.num_cols} rows, as wide as the weights are high, found {tuple(w.shape)} and {tuple(x.shape)}"
            )
        if values is not None and tuple(values.shape) != (matrix.nnz,):
            raise OperandError(f"expected values of shape ({matrix.nnz},), found {tuple(values.shape)}")
        for name, one in (("weights", w), ("values", values)):
            if one is not None and (one.dtype is not x.dtype or one.device != x.device):
                raise OperandError(
                    f"expected {name} of {x.dtype} on {x.device}, as features are, found {one.dtype} on {one.device}"
                )
        if is_plain(values, x, w):
            return self.multiply(values, x, w)
        return convolve(values, x, w, self.handle)

    def multiply(self, values: Tensor | None, x: Tensor, w: Tensor) -> Tensor:
        """Compute Y without gradients; what `rgms` and gradients end in."""
        (_, width_in, width_out), dtype = w.shape, _DTYPES.get(x.dtype)
        if values is not None or dtype is None:  # plans hold values of their own, and none are of float64
            given = self.values.to(x) if values is None else values
            out = x.new_zeros((self.matrix.num_rows, width_out))
            for (rows, cols, at), weights in zip(self.edges(x.device), w, strict=True):
                out.index_add_(0, rows, given[at, None] * (x[cols] @ weights))
            return out
        key = (width_in, width_out, dtype, x.device)
        found = self._plans.get(key)
        if found is None:
            found = self._plans[key] = self._planned(width_in, width_out, dtype, x.is_cuda)
        plan, turns, launches = found
        out = x.new_empty((self.matrix.num_rows, width_out))
        given = [each.detach() if each.requires_grad else each for each in (x, w)]
        operands = [each if _TENSORS.passable(each) else _TENSORS.copied(each) for each in given]
        if (
            launches is not None
            # The extension checks no shape, and an operator is given any: the plan refuses those that do not fit.
            and w.dtype is x.dtype
            and (x.shape, w.shape) == plan.shapes[0]
            and launches.run((width_in, width_out), _TENSORS, (*operands, out))
        ):
            if x.is_cuda:
                self._native.learn(launches.find, 3, (width_in, width_out), x)
            return out
        shown = [_TENSORS.shown(each) for each in (*operands, out)]
        turns.take(plan.run, operands, shown[:2], shown[2])
        return out

    def correlate(self, values: Tensor | None, x: Tensor, y: Tensor) -> Tensor:
        """Compute (A_r X)^T Y for each relation without gradients, (R, width_in, width_out)."""
        given = self.values.to(x) if values is None else values
        return torch.stack([(given[at, None] * x[cols]).T @ y[rows] for rows, cols, at in self.edges(x.device)])

    def project(self, x: Tensor, w: Tensor, y: Tensor) -> Tensor:
        """Compute x_j W_r y_i for each edge without gradients, (nnz,)."""
        found = x.new_empty(self.matrix.nnz)
        for (rows, cols, at), weights in zip(self.edges(x.device), w, strict=True):
            found[at] = ((x[cols] @ weights) * y[rows]).sum(dim=1)
        return found

    def edges(self, device: torch.device) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Give rows, columns and positions in A's values of the edges of each relation, int64 tensors on a device."""
        if device not in self._edges:
            (order, bounds), (_, rows, cols) = self.matrix.by_relation, self.matrix.edges
            ends = [torch.from_numpy(each.astype(np.int64)).to(device) for each in (rows[order], cols[order], order)]
            lengths = np.diff(bounds).tolist()
            self._edges[device] = list(zip(*(each.split(lengths) for each in ends), strict=True))
        return self._edges[device]

    def turned(self, values: Tensor) -> Tensor:
        """Give values in the order of the edges of `T`."""
        if values.device not in self._origins:
            relation, rows, cols = self.matrix.edges
            self._origins[values.device] = torch.from_numpy(np.lexsort((rows, relation, cols))).to(values.device)
        return values[self._origins[values.device]]

    def _planned(self, width_in: int, width_out: int, dtype: DType, on_gpu: bool) -> _Planned:
        """Plan products of two widths, on a GPU with launches that the extension makes where it can."""
        if on_gpu and torch.cuda.is_current_stream_capturing():
            raise BuildError(
                f"expected an earlier product of widths {width_in} and {width_out} while a stream captures a graph, "
                "found none: compute one before the capture"
            )
        device = find("cuda" if on_gpu else "cpu")
        problem: Any = RelationalProblem(self.matrix, width_in, width_out, dtype)
        if on_gpu:
            LAUNCHER.found()  # is built while the product is planned
        plan = first(problem, device, [Choice(*one) for one in self.in_order]).plan
        if not on_gpu:
            return _Planned(plan, Turns(), None)
        from spmark.impls.operator.gpu import CudaStreams

        open_target(device).synchronize()  # the plan's arrays are there for calls on every stream
        turns, launches, extension = Turns(CudaStreams()), None, LAUNCHER.wait()
        if extension is not None:
            from spmark.impls.operator.launches import Launches

            turns.share(extension)
            launches = Launches(extension, turns)
            launches.add((width_in, width_out), plan)
        return _Planned(plan, turns, launches)

    def __repr__(self) -> str:
        """Say in a line what the matrices are."""
        edges = f"{self.matrix.nnz:,} edges of {self.matrix.relations} relations"
        return f"<spmark.torch.RelationalMatrix {self.matrix.num_rows:,} x {self.matrix.num_cols:,}, {edges}>"
