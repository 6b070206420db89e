"""Sparse convolutions for PyTorch, with gradients; reached as `spmark.torch`.

Y = sum over offsets r of A_r X W_r, where A_r says which input stands at offset r of an output. The gradient of X is
the same product on the transposed map with the transposed weights, and that of W_r is (A_r X)^T times the gradient of
Y.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache, partial
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch import Tensor  # pyright: ignore[reportMissingImports]

from spmark.impls.core import voxels as on_host
from spmark.impls.core.errors import MatrixError, OperandError
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.problem import DType
from spmark.impls.core.relational import RelationalCsr, RelationalProblem
from spmark.impls.formats.relational_rows import why_not_rows
from spmark.impls.operator.arrays import ALIGNMENT, TorchTensors
from spmark.impls.operator.torchops import convolve, register
from spmark.impls.operator.turns import Turns
from spmark.impls.runtime.device import find
from spmark.impls.table import create

_TENSORS = TorchTensors(torch)
_DTYPES = {torch.float32: DType.FLOAT32, torch.float16: DType.FLOAT16}
_IN_ORDER = ("rgms_rows", "rgms_hyb", "gather_gemm_scatter")
"""Implementations that a product may take; the first that has its problem does."""


class KernelMap:
    """The map of a sparse convolution: which input stands at which offset of each output.

    Parameters
    ----------
    matrix : RelationalCsr
        I x K for I outputs and K inputs, all values 1.

    Raises
    ------
    MatrixError
        There are more than 32 offsets, an output has several inputs at one offset, or an edge stands twice.
    """

    def __init__(self, matrix: RelationalCsr) -> None:
        reason = why_not_rows(matrix)
        if reason is None and (matrix.wide.values != 1).any():
            reason = "expected each pair of input and output once for an offset, found values other than 1"
        if reason is not None:
            raise MatrixError(f"map: {reason}")
        self.matrix = matrix
        self.handle = register(self)
        self._plans: dict[Any, tuple[Plan, Turns]] = {}
        self._pairs: dict[torch.device, list[tuple[Tensor, Tensor]]] = {}
        self._transpose: KernelMap | None = None

    @classmethod
    def submanifold(cls, voxels: Tensor) -> KernelMap:
        """Make the map of a 3 x 3 x 3 convolution whose outputs stand where its inputs stand.

        Parameters
        ----------
        voxels : (n, 3) int32
            Each once; on a GPU the map is found there.
        """
        place = _place(voxels)
        with place.stream(voxels):
            given = place.array(voxels)
            return cls(place.kernel_map(given, given))

    @classmethod
    def strided(cls, voxels: Tensor) -> tuple[Tensor, KernelMap]:
        """Make the map of a 2 x 2 x 2 convolution of stride 2, and give the voxels of its outputs with it.

        The transposed convolution has its `T`.
        """
        place = _place(voxels)
        with place.stream(voxels):
            given = place.array(voxels)
            coarse, _ = place.distinct_voxels(on_host.coarser(given))
            return place.tensor(coarse), cls(place.kernel_map(coarse, given, 2, 2))

    @property
    def T(self) -> KernelMap:
        """The map from outputs to inputs."""
        if self._transpose is None:
            self._transpose = KernelMap(self.matrix.transposed())
            self._transpose._transpose = self
        return self._transpose

    def multiply(self, x: Tensor, w: Tensor) -> Tensor:
        """Compute Y without gradients; what `SparseConv3d` and gradients end in."""
        (_, width_in, width_out), dtype = w.shape, _DTYPES.get(x.dtype)
        if dtype is None:  # float64
            out = x.new_zeros((self.matrix.num_rows, width_out))
            for (rows, cols), weights in zip(self.pairs(x.device), w, strict=True):
                out.index_add_(0, rows, x[cols] @ weights)
            return out
        key = (width_in, width_out, dtype, x.device)
        if key not in self._plans:
            self._plans[key] = self._planned(width_in, width_out, dtype, x.is_cuda)
        plan, turns = self._plans[key]
        out = x.new_empty((self.matrix.num_rows, width_out))
        operands = [each.detach().contiguous() for each in (x, w)]
        operands = [each if each.data_ptr() % ALIGNMENT == 0 else each.clone() for each in operands]
        given = [_TENSORS.shown(each) for each in (*operands, out)]
        turns.take(plan.run, operands, given[:2], given[2])
        return out

    def pairs(self, device: torch.device) -> list[tuple[Tensor, Tensor]]:
        """Give the outputs and inputs of each offset, two int64 tensors on a device."""
        if device not in self._pairs:
            (order, bounds), (_, rows, cols) = self.matrix.by_relation, self.matrix.edges
            ends = [torch.from_numpy(each[order].astype(np.int64)).to(device) for each in (rows, cols)]
            self._pairs[device] = list(zip(*(each.split(np.diff(bounds).tolist()) for each in ends), strict=True))
        return self._pairs[device]

    def _planned(self, width_in: int, width_out: int, dtype: DType, on_gpu: bool) -> tuple[Plan, Turns]:
        device = find("cuda" if on_gpu else "cpu")
        problem = RelationalProblem(self.matrix, width_in, width_out, dtype)
        able = (how for how in map(create, _IN_ORDER) if device.kind in how.devices)
        how = next(how for how in able if how.unsupported(problem, device) is None)
        if not on_gpu:
            return how.build(problem, device), Turns()
        from spmark.impls.operator.gpu import CudaStreams

        return how.build(problem, device), Turns(CudaStreams())

    def __repr__(self) -> str:
        """Say in a line what the map is."""
        edges = f"{self.matrix.nnz:,} pairs at {self.matrix.relations} offsets"
        return f"<spmark.torch.KernelMap of {self.matrix.num_rows:,} outputs, {self.matrix.num_cols:,} inputs, {edges}>"


class SparseConv3d(torch.nn.Module):  # type: ignore[misc]
    """A sparse convolution: ``y[i] = sum over offsets r with an input j of output i: x[j] weight[r] + bias``.

    Parameters
    ----------
    in_channels, out_channels : int
    size : int
        Edge of the window: 3 for maps of 27 offsets, 2 for those of 8.
    bias : bool
        Whether a bias is added.
    device, dtype
        Of the parameters, as for any module.

    Attributes
    ----------
    weight : Parameter
        (size^3, in_channels, out_channels), uniform at first as in `torch.nn.Conv3d`; offsets in the order of
        `spmark.impls.core.voxels.offsets_of`.
    bias : Parameter or None
        (out_channels,), zeros at first.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        size: int = 3,
        bias: bool = True,
        *,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        new = partial(torch.empty, device=device, dtype=dtype)
        bound = (size**3 * in_channels) ** -0.5
        self.weight = torch.nn.Parameter(new(size**3, in_channels, out_channels).uniform_(-bound, bound))
        self.bias = torch.nn.Parameter(new(out_channels).zero_()) if bias else None

    def forward(self, x: Tensor, where: KernelMap) -> Tensor:
        """Give y, (I, out_channels), for x (K, in_channels) on a map of I outputs and K inputs.

        Raises
        ------
        OperandError
            The features or the map do not fit the layer.
        """
        offsets, width, _ = self.weight.shape
        matrix = where.matrix
        if (matrix.relations, matrix.num_cols, width) != (offsets, *x.shape):
            raise OperandError(
                f"expected a map of {offsets} offsets and features of shape ({matrix.num_cols}, {width}), found "
                f"{matrix.relations} offsets and {tuple(x.shape)}"
            )
        if x.dtype is not self.weight.dtype or x.device != self.weight.device:
            raise OperandError(
                f"expected features of {self.weight.dtype} on {self.weight.device}, found {x.dtype} on {x.device}"
            )
        y = convolve(x, self.weight, where.handle)
        return y if self.bias is None else y + self.bias


def voxelize(points: Tensor, size: float) -> tuple[Tensor, Tensor]:
    """Give the voxels in which points lie, each once, and the number of each point's voxel.

    Parameters
    ----------
    points : (m, 3) float32
    size : float
        Edge of a voxel.

    Returns
    -------
    voxels : (n, 3) int32
        In the order in which they come first.
    inverse : (m,) int32

    Raises
    ------
    MatrixError
        A point is not finite, or too far away.
    """
    place = _place(points)
    with place.stream(points):
        found = place.distinct_voxels(on_host.voxels_of_points(place.array(points), size))
        return tuple(map(place.tensor, found))


class _Host:
    """Voxels and maps of tensors on the host; `spmark.impls.operator.gpu.GpuMaps` has them on a GPU."""

    stream = nullcontext
    tensor = staticmethod(torch.from_numpy)
    distinct_voxels, kernel_map = staticmethod(on_host.distinct_voxels), staticmethod(on_host.kernel_map)

    @staticmethod
    def array(tensor: Tensor) -> Any:
        return tensor.detach().contiguous().numpy()


def _place(tensor: Tensor) -> Any:
    return _gpu(tensor.get_device()) if tensor.is_cuda else _Host


@cache
def _gpu(device: int) -> Any:
    from spmark.impls.operator.gpu import GpuMaps

    return GpuMaps()
