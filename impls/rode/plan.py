"""Row decomposition in the manner of RoDe: SpMM and SDDMM over CSR in float32.

Pang, Fei, Qu, Zhang and Li, "A Row Decomposition-based Approach for Sparse Matrix Multiplication on GPUs", PPoPP 2024.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import DeviceArray, Plan
from spmark.impls.core.problem import Csr, DType, Op, Problem, cut, openings
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target, ceil_div, open_target, too_wide
from spmark.impls.runtime.template import KernelTemplate, TemplateValue, loads_of

_FOLDER = Path(__file__).parent / "kernels"
LANES = 8
"""Threads of a subwarp."""
TILE, CHUNK = 32, 4
"""A block part is a multiple of TILE non-zeros, the first of them a multiple of CHUNK: 16 bytes of columns."""
_SEGMENT = 512
"""Most non-zeros of a subwarp in the block parts."""
THREADS = 32
"""Threads of a block, an eighth as many subwarps."""

_TILES: dict[str, tuple[TemplateValue, ...]] = {"vector": (1, 2, 4), "vectors": (1, 2), "threads": (THREADS,)}
_DOTS = {name: _TILES[name] for name in ("vector", "threads")}
SPMM_RESIDUES = KernelTemplate(_FOLDER / "spmm.cu", "spmm_rode_residues", _TILES)
SPMM_BLOCKS = KernelTemplate(_FOLDER / "spmm.cu", "spmm_rode_blocks", _TILES)
SDDMM_RESIDUES = KernelTemplate(_FOLDER / "sddmm.cu", "sddmm_rode_residues", _DOTS)
SDDMM_BLOCKS = KernelTemplate(_FOLDER / "sddmm.cu", "sddmm_rode_blocks", _DOTS)


class RoDePlan(DevicePlan):
    """SpMM or SDDMM by two grids: residues of rows, then segments of their block parts, which may begin early.

    Parameters
    ----------
    segment : int
        Most non-zeros of a subwarp in the block parts, a multiple of `TILE`.
    vectors : int
        SpMM: loads of a row of B in a lane, 1 or 2: 32 or 64 columns of a subwarp with loads of 16 bytes.
    """

    def __init__(self, problem: Problem, target: Target, *, segment: int, vectors: int) -> None:
        matrix, width, spmm = problem.matrix, problem.width, problem.op is Op.SPMM
        (vector, *_) = loads_of(width, CHUNK)
        tile = {"vector": vector, **({"vectors": vectors} if spmm else {}), "threads": THREADS}
        super().__init__(problem, target, {"segment": segment, **tile}, alignment=vector * problem.dtype.itemsize)
        with self.phase("convert"):
            segments = segments_of(matrix, segment)
        with self.phase("compile"):
            templates = (SPMM_RESIDUES, SPMM_BLOCKS) if spmm else (SDDMM_RESIDUES, SDDMM_BLOCKS)
            self._residues, self._blocks = target.load([template.instance(**tile) for template in templates])
        with self.phase("upload"):
            self.values = self.upload(problem.values if spmm else problem.factors)
            self._arrays = self.upload(matrix.indices), self.values
            self._indptr, self._segments = self.upload(matrix.indptr), self.upload(segments)
        self.deterministic = not spmm or bool(openings(segments[:, 0]).all())
        self._sizes = np.int32(width), *(() if spmm else (np.int32(problem.scaled),))
        self._counts = np.int32(matrix.num_rows), np.int32(segments.shape[0])
        tiles = ceil_div(width, LANES * vector * vectors) if spmm else 1
        self._grids = [(ceil_div(int(count), THREADS // LANES), tiles, 1) for count in self._counts]

    def enqueue(self, operands: Sequence[DeviceArray], out: DeviceArray) -> None:
        """Compute the residues, and beside them the block parts."""
        (rows, segments), rest = self._counts, (*self._arrays, *operands, out)
        self._residues.launch(self._grids[0], (rows, *self._sizes, self._indptr, *rest))
        self._blocks.launch(self._grids[1], (segments, *self._sizes, self._segments, *rest), overlap=True)


def segments_of(matrix: Csr, segment: int) -> NDArray[np.int32]:
    """Cut the block parts of the rows into segments of at most ``segment`` non-zeros.

    Returns
    -------
    (segments, 4) int32
        Row, first non-zero, non-zeros, 0; in the order of A's rows. O(I + nnz / `TILE`).
    """
    first = -(-matrix.indptr[:-1].astype(np.int64) // CHUNK) * CHUNK
    block = np.maximum(matrix.indptr[1:] - first, 0) // TILE * TILE
    return cut(first, block, segment)


@dataclass(frozen=True)
class RoDe:
    """Rows cut into a regular block part and a residue."""

    name: ClassVar[str] = "rode"
    ops: ClassVar[frozenset[Op]] = frozenset(Op)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA, DeviceKind.HOST_SIMT})
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (SPMM_RESIDUES, SPMM_BLOCKS, SDDMM_RESIDUES, SDDMM_BLOCKS)

    retired: ClassVar[Mapping[str, Any]] = {"segment": _SEGMENT, "vectors": 0, "threads": THREADS}

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse float16, which RoDe's kernels do not compute, and widths beyond the grid."""
        if problem.dtype is not DType.FLOAT32:
            return f"expected float32, which RoDe computes in, found {problem.dtype}"
        tile = LANES * loads_of(problem.width, CHUNK)[0] * _vectors(problem)
        return too_wide(problem.width, tile) if problem.op is Op.SPMM else None

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """List the segments of the block parts and upload."""
        return RoDePlan(problem, open_target(device), segment=_SEGMENT, vectors=_vectors(problem))


def _vectors(problem: Problem) -> int:
    """Take two loads where J has more columns than one load of all lanes."""
    return 2 if problem.width > LANES * loads_of(problem.width, CHUNK)[0] else 1
