"""The launcher of SpMM straight from CSR: the rows that get a block each, and the schedules worth trying.

Huang, Dai, Wang and Yang, "GE-SpMM", SC 2020, section 4, and Gale, Zaharia, Young and Elsen, "Sparse GPU Kernels for
Deep Learning", SC 2020, section 5, are the kernel's family.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.interfaces import DeviceArray
from spmark.impls.core.problem import Csr, DType, Problem
from spmark.impls.runtime.plan import OneLaunchPlan
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import C_TYPES, Instance, KernelTemplate, TemplateValue, loads_of

LANES = (4, 8, 16, 32)
"""Threads of a group."""
ROWS = (1, 2, 4)
"""Rows of a group."""
UNSPLIT = 2**31 - 1
"""Longer than any row."""
DIRECT: Mapping[str, str] = {"format": "direct"}
"""What a config of `DirectPlan` says beside its schedule where a search compares formats."""
_THREADS = 128
_LOAD_BYTES = 16
_MOST_TILES = 6
"""Tiles of `direct_starts`."""
_UNEVEN, _USUAL = (1.5, 2, 3, 4, 6, 8), 4
"""Multiples of the mean length beyond which a row may be long, and the multiple taken without a search. On an H200 the
fastest was 1.5 to 4 at J = 32 and 128 and up to 8 at J = 512 (four matrices of the tuning half, as the README says)."""
_LEAST_LONG = 8
"""Least value of ``longest`` by rule or in a search."""
SHORT = 8
"""Elements of a mean row below which a group may take several."""


def _worth_having(values: Mapping[str, TemplateValue]) -> bool:
    """Tell whether a load takes at most 16 bytes; narrower loads fix ``vectors``, ``unroll`` and ``threads``."""
    load_bytes = int(values["vector"]) * (2 if values["T"] == "half" else 4)
    plain = (values["vectors"], values["unroll"], values["threads"]) == (1, 4, _THREADS)
    return load_bytes == _LOAD_BYTES or (load_bytes < _LOAD_BYTES and plain)


SPMM_DIRECT = KernelTemplate(
    Path(__file__).parent / "direct_spmm.cu",
    "spmm_direct",
    {
        "T": ("float", "half"),
        "vector": (1, 2, 4, 8),
        "vectors": (1, 2),
        "lanes": LANES,
        "unroll": (2, 4),
        "several": (False, True),
        "threads": (64, _THREADS, 256),
    },
    legal=_worth_having,
    max_registers=80,
    max_spill_bytes=8,  # as `SPMM_ELL_BUCKETS`
)


def is_direct(config: Mapping[str, Any]) -> bool:
    """Tell whether a config of a search among formats belongs to `DirectPlan`."""
    return config.get("format") == DIRECT["format"]


def direct_instance(problem: Problem, schedule: Mapping[str, Any]) -> Instance:
    """Give the kernel of a schedule of `DirectPlan`."""
    return SPMM_DIRECT.instance(
        T=C_TYPES[problem.dtype],
        **{name: schedule[name] for name in ("vector", "vectors", "lanes", "unroll", "threads")},
        several=schedule["rows"] > 1,
    )


class DirectPlan(OneLaunchPlan):
    """C = A B by `SPMM_DIRECT`; deterministic, and every row is written.

    Parameters
    ----------
    config : mapping
        What `DevicePlan.config` says beside the schedule below.
    vector, vectors, lanes : int
        Elements of a load, loads of a thread side by side, threads of a group.
    unroll : int
        Rows of B that a thread has on their way.
    rows : int
        Neighbouring rows of a group.
    longest : int
        Elements of a row; a longer one is the work of a whole block. `UNSPLIT` leaves every row to a group.
    threads : int
        Threads of a block.
    arrays : sequence of device arrays, optional
        `arrays` of another plan of the same problem: the matrix is then not uploaded again.

    Attributes
    ----------
    arrays : list of device arrays
        indptr (I + 1,) and indices (nnz,) int32, values (nnz,) of the problem's dtype.
    """

    def __init__(
        self,
        problem: Problem,
        target: Target,
        config: Mapping[str, object],
        *,
        vector: int,
        vectors: int,
        lanes: int,
        unroll: int,
        rows: int = 1,
        longest: int = UNSPLIT,
        threads: int = _THREADS,
        arrays: Sequence[DeviceArray] = (),
    ) -> None:
        schedule = {"vector": vector, "vectors": vectors, "lanes": lanes, "unroll": unroll, "rows": rows}
        schedule |= {"longest": longest, "threads": threads}
        super().__init__(problem, target, {**config, **schedule}, alignment=vector * problem.dtype.itemsize)
        matrix = problem.matrix
        self.stored = matrix.nnz
        self._load(direct_instance(problem, schedule))
        with self.phase("convert"):
            long_rows = rows_of_blocks(matrix, rows, longest)
        with self.phase("upload"):
            host = (matrix.indptr, matrix.indices, problem.values)
            self.arrays = list(arrays) or [target.upload(array) for array in host]
            self.values = self.arrays[2]
            self.device_bytes += sum(array.nbytes for array in host)
            blocks = self.upload(long_rows)
        sizes = (matrix.num_rows, problem.width, rows, longest, long_rows.size)
        self._args = (*map(np.int32, sizes), *self.arrays, blocks)
        groups = ceil_div(matrix.num_rows, rows)
        num_blocks = long_rows.size + ceil_div(groups, threads // lanes)
        self._grid = (num_blocks, ceil_div(problem.width, lanes * vector * vectors), 1)
        self._shared_bytes = 4 * vector * threads if long_rows.size else 0


def rows_of_blocks(matrix: Csr, rows: int, longest: int) -> NDArray[np.int32]:
    """List the rows that get a block each: all rows of a group in which a row has more than ``longest`` elements.

    Parameters
    ----------
    matrix : Csr
    rows : int
        Neighbouring rows of a group.
    longest : int

    Returns
    -------
    (n,) int32
        Longest first; rows of equal length stand in A's order. O(I + n log n).
    """
    first = np.unique(np.flatnonzero(matrix.row_lengths > longest) // rows) * rows
    block_rows = (first[:, None] + np.arange(rows)).ravel()
    block_rows = block_rows[block_rows < matrix.num_rows]
    return block_rows[np.argsort(-matrix.row_lengths[block_rows], kind="stable")].astype(np.int32)


def mean_length(matrix: Csr) -> float:
    """Give the non-zeros of a mean row."""
    return matrix.nnz / max(1, matrix.num_rows)


def lengths_to_split(matrix: Csr) -> tuple[int, ...]:
    """List the values of ``longest`` that are worth trying, rising: multiples of the mean, and last `UNSPLIT`."""
    most, mean = int(matrix.row_lengths.max(initial=0)), mean_length(matrix)
    limits = {max(_LEAST_LONG, round(times * mean)) for times in _UNEVEN}
    return (*sorted(limit for limit in limits if limit < most), UNSPLIT)


def usual_length(matrix: Csr) -> int:
    """Give the value of ``longest`` without a search: four mean rows, or `UNSPLIT` where no row is longer."""
    usual = max(_LEAST_LONG, round(_USUAL * mean_length(matrix)))
    return usual if usual < matrix.row_lengths.max(initial=0) else UNSPLIT


def load_of(width: int, dtype: DType) -> int:
    """Choose the elements of a load: as many as divide J, fit into 16 bytes and give four lanes something to do."""
    loads = loads_of(width, _LOAD_BYTES // dtype.itemsize)
    return next(vector for vector in loads if vector == 1 or LANES[0] * vector <= width)


def loads_whole(width: int, dtype: DType) -> bool:
    """Tell whether J allows loads of 16 bytes; only such loads may be two side by side or unrolled in two ways."""
    return load_of(width, dtype) * dtype.itemsize == _LOAD_BYTES


def direct_tiles(width: int, dtype: DType) -> list[dict[str, int]]:
    """List tiles of `DirectPlan` that J fills, widest first; of equally wide tiles the one with more lanes comes first.

    Two loads stand side by side only where a load has 16 bytes.
    """
    vector = load_of(width, dtype)
    most = 2 if loads_whole(width, dtype) else 1
    pairs = [(n, vectors) for vectors in range(1, most + 1) for n in LANES if n * vectors * vector <= width]
    pairs.sort(key=lambda pair: (-pair[0] * pair[1], pair[1]))
    return [{"vector": vector, "vectors": vectors, "lanes": n} for n, vectors in pairs or [(LANES[0], 1)]]


def direct_starts(problem: Problem) -> list[dict[str, int]]:
    """List the schedules of `DirectPlan` with which a search begins: the widest tiles, one row a group."""
    tiles = direct_tiles(problem.width, problem.dtype)[:_MOST_TILES]
    plain = {"unroll": 4, "rows": 1, "longest": usual_length(problem.matrix), "threads": _THREADS}
    return [{**tile, **plain} for tile in tiles]


def direct_axes(problem: Problem) -> dict[str, tuple[int, ...]]:
    """List the other values of `direct_starts`' tunables, by name; empty without a choice."""
    whole = loads_whole(problem.width, problem.dtype)
    return {
        "rows": ROWS[1:] if mean_length(problem.matrix) < SHORT else (),
        "unroll": (2,) if whole else (),
        "longest": lengths_to_split(problem.matrix),
        "threads": (64, 256) if whole else (),
    }
