"""Layers of a network on unrolled kernels: SpMM with bias and ReLU fused, and convolutions without im2col.

A sweep has no such operators: callers of the library use these plans. The estimate chooses a tile size.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import UnsupportedError
from spmark.impls.core.interfaces import DeviceArray, Plan
from spmark.impls.core.operands import check_operands
from spmark.impls.core.problem import Csr, Op, Problem
from spmark.impls.lo_spmm.conv import ConvShape
from spmark.impls.lo_spmm.kernel import Ending, TileSchedule, UnrolledKernel, make_tiles
from spmark.impls.lo_spmm.machine import Emitter, Launch, is_assembled, make_for
from spmark.impls.lo_spmm.plan import LoSpmm
from spmark.impls.lo_spmm.reorder import Reordering
from spmark.impls.lo_spmm.search import Pins, explore
from spmark.impls.lo_spmm.tuning import Chooser, choose
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import open_target


class SparseLayer(DevicePlan):
    """act(A B + bias) by one launch, also in rows without weights. `fused_spmm` and `conv2d` make it."""

    def __init__(
        self, problem: Problem, device: DeviceSpec, *, ending: Ending, conv: ConvShape | None, emitter: Emitter
    ) -> None:
        super().__init__(problem, open_target(device), {"relu": ending.relu, "bias": ending.bias is not None})
        matrix = problem.matrix
        self.stored = matrix.nnz
        self._operand_shape: tuple[int, ...] = problem.operand_shapes[0]
        self._result_shape: tuple[int, ...] = problem.out_shape
        if conv is not None:
            self._operand_shape = (conv.batch, conv.channels, conv.height, conv.width)
            self._result_shape = (conv.batch, conv.filters, *conv.out_size)
        with self.phase("search"):
            # Neighbouring pixels are not neighbours in memory where a row of the image ends.
            pins = Pins(cpt=1 if conv is not None else 0)
            chosen = choose(explore(problem, device, Reordering.GREEDY, pins), Chooser.ESTIMATE)
        size, self.search = chosen.size, chosen.record
        with self.phase("convert"):
            tiles = make_tiles(matrix, problem.values, chosen.dealt.rows)
            schedule = TileSchedule(size.cpt, pins.depth(size.tile_rows, size.cpt))
            dispatch = np.arange(len(tiles), dtype=np.int32)
            kernel = UnrolledKernel(tiles, dispatch, problem.width, schedule, conv=conv, ending=ending)
        with self.phase("compile"):
            code, size = make_for(kernel, self.target, emitter, size)
        self._alignment = problem.dtype.itemsize * size.cpt
        self._launch = Launch.of(code, size, len(tiles), problem)
        self.device_bytes += code.code_bytes
        assembled = is_assembled(self.target, emitter)
        self.config |= vars(size) | {"emitter": str(Emitter.PTX if assembled else Emitter.CUDA)}

    def _check(self, operands: Sequence[DeviceArray], out: DeviceArray) -> None:
        shapes, where = (self._operand_shape,), self.target.location
        check_operands(shapes, self._result_shape, self._dtype, operands, out, device=where, alignment=self._alignment)

    def enqueue(self, operands: Sequence[DeviceArray], out: DeviceArray) -> None:
        """Compute all of the result."""
        self._launch.enqueue(operands[0], out)


def fused_spmm(
    problem: Problem,
    device: DeviceSpec,
    *,
    bias: NDArray[np.float32] | None = None,
    relu: bool = False,
    emitter: Emitter = Emitter.PTX,
) -> Plan:
    """Plan C = act(A B + bias), with the bias as a literal and the activation in registers.

    Parameters
    ----------
    problem : Problem
        SpMM in float32 with at least one non-zero.
    device : DeviceSpec
    bias : (I,) float32, optional
    relu : bool
    emitter : Emitter

    Raises
    ------
    UnsupportedError
        `LoSpmm.unsupported` gives a reason.
    ValueError
        The bias has another size or is not finite.
    CompileError
        A compiler or assembler failed.
    """
    return SparseLayer(
        _checked(problem, device), device, ending=_ending(bias, problem.matrix.num_rows, relu), conv=None,
        emitter=emitter,
    )  # fmt: skip


def conv2d(
    weights: NDArray[np.float32],
    images: tuple[int, int, int, int],
    device: DeviceSpec,
    *,
    stride: int = 1,
    padding: int = 0,
    groups: int = 1,
    bias: NDArray[np.float32] | None = None,
    relu: bool = False,
    emitter: Emitter = Emitter.PTX,
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
    groups : int
        1: several groups, whose filters see other channels each, would be a block-diagonal A.
    bias : (O,) float32, optional
    relu : bool
    emitter : Emitter

    Raises
    ------
    UnsupportedError
        There are several groups, or `LoSpmm.unsupported` gives a reason.
    ValueError
        Shapes do not fit each other.
    CompileError
        A compiler or assembler failed.
    """
    if groups != 1:
        raise UnsupportedError(f"expected a convolution in one group, found {groups}: build one plan for each group")
    if weights.ndim != 4 or len(images) != 4 or weights.shape[1] != images[1]:
        raise ValueError(f"expected weights (O, C, R, S) and images (N, C, H, W), found {weights.shape} and {images}")
    filters, _, down, right = weights.shape
    conv = ConvShape(*images, filters, (down, right), stride, padding)
    rows, cols = np.nonzero(weights.reshape(filters, -1))
    indptr = np.searchsorted(rows, np.arange(filters + 1)).astype(np.int32)
    kept = weights.reshape(filters, -1)[rows, cols].astype(np.float32)
    matrix = Csr.checked((filters, weights[0].size), indptr, cols.astype(np.int32), kept)
    problem = _checked(Problem(Op.SPMM, matrix, conv.columns), device)
    return SparseLayer(problem, device, ending=_ending(bias, filters, relu), conv=conv, emitter=emitter)


def _checked(problem: Problem, device: DeviceSpec) -> Problem:
    reason = LoSpmm(mode=Chooser.ESTIMATE).unsupported(problem, device)
    if reason is None and not problem.matrix.nnz:
        reason = "expected at least one weight that is not zero, found none"
    if reason is not None:
        raise UnsupportedError(reason)
    return problem


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
