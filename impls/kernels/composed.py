"""The launcher of SpMM over a decomposed matrix: dense blocks, CSR rows and ELL buckets in one fused grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import BuildError
from spmark.impls.core.interfaces import DeviceArray
from spmark.impls.core.problem import Problem
from spmark.impls.formats.bsr import BsrFormat
from spmark.impls.formats.csr import CsrFormat
from spmark.impls.formats.decompose import Part, RowUse, row_use
from spmark.impls.formats.hyb import HybFormat
from spmark.impls.kernels.ell_buckets import block_ranges
from spmark.impls.kernels.shared_rows import SharedRows, shared_instances
from spmark.impls.runtime.fusion import Body, FusedLaunch, FusedTemplate, Share
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target, ceil_div

NO_ROW = -(2**31)
"""Target of a row that the kernel does not write, ``kNoRow`` of ``row_target.cuh``."""
TILE = 64
"""Columns of C that the blocks' body takes at once, ``BsrTiles::kColumns``."""
_WORK = 32
"""Elements of A that a group of lanes takes in one thread block."""
_INT, _HALF = "int32", "float16"
_BSR = Body("bsr_tiles", (_INT, _INT, _HALF, _INT))
_CSR = Body("csr_rows", (_INT, _INT, _HALF, _INT))
_ELL = Body("ell_buckets", (_INT, _INT, _INT, _HALF))
SPMM_COMPOSED = FusedTemplate(
    Path(__file__).parent / "composed.cu",
    "spmm_composed",
    {"vector": (1, 2, 4, 8), "lanes": (8, 32), "size": (16, 32), "threads": (128,)},
    max_registers=128,
    max_spill_bytes=32,  # ptxas stops at 64 or 96 registers
    bodies=(_BSR, _CSR, _ELL),
)


class ComposedPlan(DevicePlan):
    """C = A B in float16 over the parts of a decomposition, at most one for each body of `SPMM_COMPOSED`.

    Parameters
    ----------
    problem : Problem
    target : Target
    parts : sequence of Part
        From `spmark.impls.formats.decompose.decompose`.
    config : mapping
        What `DevicePlan.config` says; the schedule below is part of it.
    vector, lanes : int
        Elements of a load, and threads of a group, of the two bodies without matrix units.

    Raises
    ------
    BuildError
        Two parts have the same body, or no body takes a part's format.
    """

    def __init__(
        self,
        problem: Problem,
        target: Target,
        parts: Sequence[Part],
        config: Mapping[str, object],
        *,
        vector: int,
        lanes: int,
    ) -> None:
        schedule = {"vector": vector, "lanes": lanes}
        super().__init__(problem, target, {**config, **schedule}, alignment=vector * problem.dtype.itemsize)
        names = [part.kernel for part in parts]
        if len(set(names)) < len(names):
            raise BuildError(f"expected at most one part for each body, found {', '.join(names)}")
        threads = int(SPMM_COMPOSED.space["threads"][0])
        groups = threads // lanes
        self.stored = sum(part.held.stored for part in parts)
        with self.phase("convert"):
            use = row_use(problem.matrix.num_rows, (part.rows for part in parts))
            self.deterministic = use.shared.size == 0
            tiles = ceil_div(problem.width, lanes * vector)
            size = int(SPMM_COMPOSED.space["size"][0])
            shares: dict[str, tuple[int, int, tuple[NDArray[np.generic], ...]]] = {}
            for part in parts:
                if isinstance(part.held, BsrFormat):
                    size = part.held.block_shape[0]
                    shares[part.kernel] = _bsr(part, use, ceil_div(problem.width, TILE))
                elif isinstance(part.held, CsrFormat):
                    shares[part.kernel] = _csr(part, use, groups, tiles)
                elif isinstance(part.held, HybFormat):
                    shares[part.kernel] = _ell(part.held, use, groups, tiles)
                else:
                    raise BuildError(f"expected parts in bsr, csr or hyb, found {part.held.name} for {part.kernel}")
        with self.phase("upload"):
            uploaded = {
                name: Share(items, tiles, tuple(self.upload(array) for array in arrays))
                for name, (items, tiles, arrays) in shares.items()
            }
        with self.phase("compile"):
            instance = SPMM_COMPOSED.instance(vector=vector, lanes=lanes, size=size, threads=threads)
            around = shared_instances(use.shared.size > 0, problem.width, problem.dtype, vector)
            self._launch = FusedLaunch(target, instance, uploaded, around)
        with self.phase("upload"):
            self._rows = SharedRows(self, use, problem.width, problem.dtype, self._launch.around)
        self._sizes = np.int32(problem.matrix.num_cols), np.int32(problem.width)

    def enqueue(self, operands: Sequence[DeviceArray], out: DeviceArray) -> None:
        """Clear rows that are empty or added up, compute in one grid, and round rows that were added up."""
        self._rows.before(out)
        self._launch.enqueue(self._sizes, (operands[0], out, self._rows.sums))
        self._rows.after(out)


def _bsr(part: Part, use: RowUse, tiles: int) -> tuple[int, int, tuple[NDArray[np.generic], ...]]:
    """Give the block rows that have blocks; the kernel does not write their rows without non-zeros."""
    bsr = cast("BsrFormat", part.held)
    size = bsr.block_shape[0]
    every = np.full(-(-bsr.shape[0] // size) * size, NO_ROW, np.int32)
    every[part.rows] = use.targets(part.rows, numbered=True)
    filled = np.flatnonzero(np.diff(bsr.indptr))
    targets = every.reshape(-1, size)[filled]
    indptr = np.append(bsr.indptr[filled], bsr.indptr[-1]).astype(np.int32)
    arrays = (indptr, bsr.indices, bsr.blocks.astype(np.float16), targets)
    return filled.size, tiles, arrays


def _csr(part: Part, use: RowUse, groups: int, tiles: int) -> tuple[int, int, tuple[NDArray[np.generic], ...]]:
    """Give the rows that have non-zeros, and as many empty ones as fill the last thread block."""
    csr = cast("CsrFormat", part.held)
    items = ceil_div(part.rows.size, groups)
    indptr = np.full(items * groups + 1, csr.indptr[-1], np.int32)
    indptr[: part.rows.size] = csr.indptr[part.rows]
    targets = np.full(items * groups, NO_ROW, np.int32)
    targets[: part.rows.size] = use.targets(part.rows, numbered=True)
    return items, tiles, (indptr, csr.indices, csr.values.astype(np.float16), targets)


def _ell(hyb: HybFormat, use: RowUse, groups: int, tiles: int) -> tuple[int, int, tuple[NDArray[np.generic], ...]]:
    """Give the ranges of the buckets. A range's sign says whether its rows are shared, so that targets need no sign."""
    rows = hyb.rows.copy()
    real = rows >= 0
    targets = use.targets(rows[real], numbered=True)
    rows[real] = np.where(targets < 0, -1 - targets, targets)
    ranges = block_ranges(hyb, groups, _WORK)
    return ranges.shape[0], tiles, (ranges, rows, hyb.indices, hyb.values.astype(np.float16))
