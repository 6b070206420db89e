"""Layers of a network on unrolled kernels: SpMM with bias and ReLU fused, and convolutions without im2col.

Networks (`spmark.impls.networks`) are made of them, and callers of the library use these plans. The estimate chooses a
tile size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import UnsupportedError
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.problem import Csr, Op, Problem
from spmark.impls.lo_spmm.conv import ConvShape
from spmark.impls.lo_spmm.kernel import Ending
from spmark.impls.lo_spmm.plan import LoSpmm, TilePlan
from spmark.impls.lo_spmm.tuning import Chooser
from spmark.impls.runtime.target import open_target


class SparseLayer(TilePlan):
    """act(A B + bias) by one launch, also in rows without weights. `fused_spmm` and `conv2d` make it."""

    def __init__(self, problem: Problem, device: DeviceSpec, ending: Ending, conv: ConvShape | None = None) -> None:
        # Neighbouring pixels are not neighbours in memory where a row of the image ends.
        how = LoSpmm(mode=Chooser.ESTIMATE, cpt=0 if conv is None else 1, split=1)
        reason = how.unsupported(problem, device)
        if reason is not None:
            raise UnsupportedError(reason)
        super().__init__(problem, open_target(device), {"relu": ending.relu, "bias": ending.bias is not None})
        self.build(problem, how, conv=conv, ending=ending)
        if conv is not None:
            images = (conv.batch, conv.channels, conv.height, conv.width)
            shapes: Any = (images,), (conv.batch, conv.filters, *conv.out_size)
            self.shapes = shapes


def fused_spmm(
    problem: Problem,
    device: DeviceSpec,
    *,
    bias: NDArray[np.float32] | None = None,
    relu: bool = False,
) -> Plan:
    """Plan C = act(A B + bias), with the bias as a literal and the activation in registers.

    Parameters
    ----------
    problem : Problem
        SpMM in float32 with at least one non-zero.
    device : DeviceSpec
    bias : (I,) float32, optional
    relu : bool

    Raises
    ------
    UnsupportedError
        `LoSpmm.unsupported` gives a reason.
    ValueError
        The bias has another size or is not finite.
    CompileError
        A compiler or assembler failed.
    """
    return SparseLayer(problem, device, _ending(bias, problem.matrix.num_rows, relu))


def conv2d(
    weights: NDArray[np.float32],
    images: tuple[int, int, int, int],
    device: DeviceSpec,
    *,
    stride: int = 1,
    padding: int = 0,
    bias: NDArray[np.float32] | None = None,
    relu: bool = False,
) -> Plan:
    """Plan a convolution whose zero weights are left out; its ``run`` takes one array of ``images`` and writes NCHW.

    Parameters
    ----------
    weights : (O, C, R, S) float32
        At least one is not zero.
    images : (N, C, H, W)
        Shape of the input.
    device : DeviceSpec
    stride, padding : int
        The same in both directions; padding is of zeros.
    bias : (O,) float32, optional
    relu : bool

    Raises
    ------
    UnsupportedError
        `LoSpmm.unsupported` gives a reason.
    ValueError
        Shapes do not fit each other.
    CompileError
        A compiler or assembler failed.
    """
    if weights.ndim != 4 or len(images) != 4 or weights.shape[1] != images[1]:
        raise ValueError(f"expected weights (O, C, R, S) and images (N, C, H, W), found {weights.shape} and {images}")
    filters, _, down, right = weights.shape
    conv = ConvShape(*images, filters, (down, right), stride, padding)
    problem = Problem(Op.SPMM, Csr.of(csr_array(weights.reshape(filters, -1))), conv.columns)
    return SparseLayer(problem, device, _ending(bias, filters, relu), conv)


def _ending(bias: NDArray[np.float32] | None, num_rows: int, relu: bool) -> Ending:
    if bias is None:
        return Ending(None, relu)
    with np.errstate(over="ignore"):  # a float64 beyond float32 is refused with the infinities
        added = np.asarray(bias, np.float32)
    if added.shape != (num_rows,) or not np.isfinite(added).all():
        raise ValueError(
            f"expected a bias of {num_rows} elements that float32 holds, found shape {added.shape}: {added}"
        )
    return Ending(added, relu)
