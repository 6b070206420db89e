"""Sparse convolutions for PyTorch, with gradients; reached as `spmark.torch`.

Y = sum over offsets r of A_r X W_r, where A_r says which input stands at offset r of an output.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache, partial
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import Tensor  # pyright: ignore[reportMissingImports]

from spmark.impls.core import voxels as on_host
from spmark.impls.core.errors import MatrixError
from spmark.impls.core.interfaces import Config
from spmark.impls.core.relational import RelationalCsr
from spmark.impls.formats.relational_rows import why_not_rows
from spmark.impls.operator.relations import RelationalMatrix


class KernelMap(RelationalMatrix):
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

    in_order: tuple[tuple[str, Config], ...] = (("rgms_rows", {}), *RelationalMatrix.in_order)

    def __init__(self, matrix: RelationalCsr) -> None:
        reason = why_not_rows(matrix)
        if reason is None and (matrix.wide.values != 1).any():
            reason = "expected each pair of input and output once for an offset, found values other than 1"
        if reason is not None:
            raise MatrixError(f"map: {reason}")
        super().__init__(matrix)

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

        The transposed convolution has its `T`, from outputs to inputs.
        """
        place = _place(voxels)
        with place.stream(voxels):
            given = place.array(voxels)
            coarse, _ = place.distinct_voxels(on_host.coarser(given))
            return place.tensor(coarse), cls(place.kernel_map(coarse, given, 2, 2))

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
        y = where.rgms(x, self.weight)
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
