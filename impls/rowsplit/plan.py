"""Row-swizzled one-dimensional tiling in the manner of Sputnik: SpMM and SDDMM over CSR with vector loads.

Gale, Zaharia, Young and Elsen, "Sparse GPU Kernels for Deep Learning", SC 2020, sections 5 (SpMM) and 6 (SDDMM).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.problem import Csr, DType, Op, Problem, cut
from spmark.impls.runtime.plan import OneLaunchPlan
from spmark.impls.runtime.target import Target, ceil_div, open_target, too_wide
from spmark.impls.runtime.template import C_TYPES, ELEMENTS, KernelTemplate, loads_of

_FOLDER = Path(__file__).parent / "kernels"
_LOAD_BYTES = 16
"""Bytes of the widest load, and of one copy to shared memory."""
WARP = 32
LANES = (8, 16, 32)
_DEPTH = 128
"""Non-zeros of a row that are staged at once."""
INDEX_TYPES = {"int32": "int", "int16": "short"}
_MAX_SHORT_COLS = 1 << 15
_STRIP = 8
"""Threads and non-zeros of a subwarp of SDDMM."""


SPMM = KernelTemplate(
    _FOLDER / "spmm.cu",
    "spmm_rowsplit",
    {
        "T": ELEMENTS,
        "Index": ("int", "short"),
        "vector": (1, 2, 4, 8),
        "lanes": LANES,
        "tiles": (1, 2),
        "threads": (WARP,),
    },
)
SDDMM = KernelTemplate(
    _FOLDER / "sddmm.cu",
    "sddmm_rowsplit",
    {"T": ELEMENTS, "vector": (1, 2, 4, 8), "threads": (WARP, 2 * WARP)},
)


def vector_of(width: int, dtype: DType) -> int:
    """Choose elements of a load: the most that divide J and keep more than half of eight lanes busy."""
    loads = loads_of(width, _LOAD_BYTES // dtype.itemsize)
    return next(v for v in loads if v == 1 or LANES[0] * v < 2 * width)


class RowSplitSpmm(OneLaunchPlan):
    """C = A B by `SPMM`.

    Parameters
    ----------
    index : {"int32", "int16"}
        Type of the columns.
    vector, lanes, tiles : int
        Elements of a load of B, threads of a subwarp, vectors of one thread: a subwarp has ``lanes vector tiles``
        columns of one row, a block ``32 / lanes`` rows.
    depth : int
        Non-zeros of a row that are staged at once, a multiple of 8.
    """

    def __init__(
        self, problem: Problem, target: Target, *, index: str, vector: int, lanes: int, tiles: int, depth: int = _DEPTH
    ) -> None:
        matrix = problem.matrix
        tile = {"vector": vector, "lanes": lanes, "tiles": tiles}
        config = {"index": index, **tile, "depth": depth}
        super().__init__(problem, target, config, alignment=vector * problem.dtype.itemsize)
        self._load(SPMM.instance(T=C_TYPES[problem.dtype], Index=INDEX_TYPES[index], **tile, threads=WARP))
        with self.phase("convert"):
            order = longest_first(matrix.row_lengths)
            chunk = _LOAD_BYTES // problem.dtype.itemsize
            # Zeros at the end, so that the kernel's last copy of a chunk stays inside of the array.
            room = (0, -matrix.nnz % chunk)
            columns, values = np.pad(matrix.indices.astype(index, copy=False), room), np.pad(problem.values, room)
        rows = WARP // lanes
        grid = (ceil_div(matrix.num_rows, rows), ceil_div(problem.width, lanes * vector * tiles), 1)
        self._arrange(grid, (matrix.num_rows, problem.width, depth), (order, matrix.indptr, columns, values))
        self.values = self._args[-1]
        self._shared_bytes = rows * (_LOAD_BYTES + 2 * depth * (columns.itemsize + values.itemsize))


class RowSplitSddmm(OneLaunchPlan):
    """D = (X Y^T at A's non-zeros) by `SDDMM`, scaled by A where the problem is.

    Parameters
    ----------
    vector, threads : int
        Elements of a load, threads of a block.
    """

    def __init__(self, problem: Problem, target: Target, *, vector: int, threads: int) -> None:
        matrix, schedule = problem.matrix, {"vector": vector, "threads": threads}
        super().__init__(problem, target, schedule, alignment=vector * problem.dtype.itemsize)
        self._load(SDDMM.instance(T=C_TYPES[problem.dtype], **schedule))
        with self.phase("convert"):
            strips = strips_of(matrix, _STRIP)
        grid = (ceil_div(strips.shape[0], threads // _STRIP), 1, 1)
        sizes = (strips.shape[0], problem.width, problem.scaled)
        self._arrange(grid, sizes, (strips, matrix.indices, problem.factors))
        self.values = self._args[-1]


def longest_first(lengths: NDArray[np.int32]) -> NDArray[np.int32]:
    """Order rows by length, longest first, rows of equal length as in A: the row swizzle. O(n log n)."""
    return np.argsort(-lengths, kind="stable").astype(np.int32)


def strips_of(matrix: Csr, strip: int) -> NDArray[np.int32]:
    """Cut the rows into strips of at most ``strip`` non-zeros.

    Returns
    -------
    (strips, 4) int32
        Row, first non-zero, non-zeros, 0; longest strips first. O(nnz / strip + I), without the sort.
    """
    made = cut(matrix.indptr, matrix.row_lengths, strip)
    return made[longest_first(made[:, 2])]


@dataclass(frozen=True)
class RowSplit:
    """One-dimensional tiles of rows sorted by length."""

    name: ClassVar[str] = "rowsplit"
    ops: ClassVar[frozenset[Op]] = frozenset(Op)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA, DeviceKind.HOST_SIMT})
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (SPMM, SDDMM)
    retired: ClassVar[Mapping[str, Any]] = {
        **dict.fromkeys(("vector", "lanes", "tiles"), 0),
        **{"depth": _DEPTH, "index": "auto", "strip": _STRIP},
    }

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse widths beyond the grid."""
        if problem.op is Op.SDDMM:
            return None
        chosen = _schedule(problem)
        return too_wide(problem.width, chosen["lanes"] * chosen["vector"] * chosen["tiles"])

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Sort rows (SpMM) or strips of rows (SDDMM) by length and upload."""
        target = open_target(device)
        if problem.op is Op.SPMM:
            return RowSplitSpmm(problem, target, **_schedule(problem))
        vector = vector_of(problem.width, problem.dtype)
        # With one or two trips over J a warp has little to do: two share a block.
        threads = 2 * WARP if problem.width <= 2 * _STRIP * vector else WARP
        return RowSplitSddmm(problem, target, vector=vector, threads=threads)


def _schedule(problem: Problem) -> dict[str, Any]:
    """Choose the schedule of SpMM by the README's rule."""
    width, vector = problem.width, vector_of(problem.width, problem.dtype)
    lanes = next((n for n in LANES if n * vector >= width), WARP)
    tiles = 2 if vector * problem.dtype.itemsize == _LOAD_BYTES and width >= 4 * lanes * vector else 1
    short = problem.dtype.narrow and problem.matrix.num_cols <= _MAX_SHORT_COLS and vector >= 4
    return {"index": "int16" if short else "int32", "vector": vector, "lanes": lanes, "tiles": tiles}
