"""The launcher of SpMM straight from CSR: the rows that whole blocks take, and the schedule by rule.

Huang, Dai, Wang and Yang, "GE-SpMM", SC 2020, section 4, and Gale, Zaharia, Young and Elsen, "Sparse GPU Kernels for
Deep Learning", SC 2020, section 5, are the kernel's family.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.interfaces import Config, DeviceArray
from spmark.impls.core.problem import Csr, DType, Problem, numbered
from spmark.impls.runtime.plan import Arrays, OneLaunchPlan
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import C_TYPES, ELEMENTS, Instance, KernelTemplate, widest_load

LANES = (4, 8, 16, 32)
"""Threads of a group."""
PARTS = (1, 2, 4, 8)
"""Parts of a group, each of which takes every so many elements of a row."""
ROWS = (1, 2, 4)
"""Rows of a group."""
UNSPLIT = 2**31 - 1
"""Longer than any row."""
WARP = 32
_LOAD_BYTES = 16
_AT_ONCE = 1 << 17
"""Threads of a launch that a large GPU still has room for."""
UNROLL, DEEP = 4, 8
"""Rows of B that a lane has on their way: usually, and where few rows are on their way otherwise."""
_UNEVEN, _USUAL, _USUAL_SMALL = (1.5, 2, 3, 4, 6, 8), 4, 2
"""Multiples of the mean length beyond which a row may be long, and the multiples taken without a search: the best of
1.5, 2, 4 and 8 on the tuning half, the second where blocks are idle. The mean leaves empty rows out: with them, most
rows of a graph in which few nodes have edges would be long."""
_PIECE = 1024
"""Elements of a piece of a row that a block takes, at least: of 128 to 2,048 the smaller of the two best on the tuning
half (development runs on an H100)."""
_LEAST_LONG = 8
"""Least value of ``longest`` by rule or in a search."""
SHORT = 8
"""Elements of a mean row below which a group may take several."""
_TILE, _SHORT_TILE = 512, 256
"""Bytes of a row of B that a group takes by rule: usually, and where rows are short."""


SPMM_DIRECT = KernelTemplate(
    Path(__file__).parent / "direct_spmm.cu",
    "spmm_direct",
    {
        "T": ELEMENTS,
        "vector": (1, 2, 4, 8),
        "vectors": (1, 2),
        "lanes": LANES,
        "parts": PARTS,
        "unroll": (UNROLL, 2, DEEP),
        "several": (False, True),
        "threads": (128, 64, 256),
    },
)
TUNABLES = {n: tuple(map(int, values)) for n, values in SPMM_DIRECT.space.items() if n not in {"T", "several"}}
"""What a search may choose of the template; the first value of each is taken without a reason for another."""
PLAIN = {**{name: values[0] for name, values in TUNABLES.items()}, "rows": 1, "longest": UNSPLIT}


def direct_instance(problem: Problem, schedule: Mapping[str, Any]) -> Instance:
    """Give the kernel of a schedule of `DirectPlan`."""
    whole = {**PLAIN, **schedule}
    tunables = {name: whole[name] for name in TUNABLES}
    return SPMM_DIRECT.instance(T=C_TYPES[problem.dtype], **tunables, several=whole["rows"] > 1)


class DirectPlan(OneLaunchPlan):
    """C = A B by `SPMM_DIRECT`; deterministic, and every row is written.

    Parameters
    ----------
    config : mapping
        What `DevicePlan.config` says beside the schedule below.
    arrays : sequence of device arrays, optional
        `arrays` of another plan of the same problem: the matrix is then not uploaded again.
    pieces : Pieces, optional
        What whole blocks take by this schedule; by default it is listed here.
    **schedule : int
        Any of the following; the others are the first of their values in `SPMM_DIRECT`.

        - ``vector, vectors, lanes``: elements of a load, loads of a thread side by side, threads of a part of a group;
        - ``parts``: parts of a group, which share each row;
        - ``unroll``: rows of B that a thread has on their way;
        - ``rows``: neighbouring rows of a group;
        - ``longest``: elements of a row; a longer one is the work of whole blocks. `UNSPLIT` leaves all to groups;
        - ``threads``: threads of a block.

    Attributes
    ----------
    arrays : list of device arrays
        indptr (I + 1,) and indices (nnz,) int32, values (nnz,) of the problem's dtype.
    """

    def __init__(
        self,
        problem: Problem,
        target: Target,
        config: Config,
        *,
        arrays: Arrays = (),
        pieces: Pieces | None = None,
        **schedule: int,
    ) -> None:
        schedule = {**PLAIN, **schedule}
        super().__init__(problem, target, {**config, **schedule}, schedule["vector"] * problem.dtype.itemsize)
        matrix, rows, longest, threads = problem.matrix, schedule["rows"], schedule["longest"], schedule["threads"]
        self._load(direct_instance(problem, schedule))
        if pieces is None:
            with self.phase("convert"):
                pieces = pieces_of_blocks(matrix, rows, longest)
        listed, shared, shared_rows = pieces
        sizes = (matrix.num_rows, problem.width, rows, longest, len(listed))
        held = self.share(arrays, (matrix.indptr, matrix.indices, problem.values))
        tiles = ceil_div(problem.width, schedule["lanes"] * schedule["vector"] * schedule["vectors"])
        entries = self.upload(listed) if len(listed) else held[0]  # which no block takes for them
        sums, counters = target.no_floats, held[0]
        if shared:
            sums, counters = self.workspace((shared, problem.width), np.float32), self.counters(shared_rows * tiles)
        self._args = (*map(np.int32, sizes), *held, entries, sums, counters)
        self.values = held[2]
        groups = ceil_div(matrix.num_rows, rows)
        num_blocks = len(listed) + ceil_div(groups, threads // (schedule["lanes"] * schedule["parts"]))
        self._grid = (num_blocks, tiles, 1)
        self._shared_bytes = 4 * schedule["vector"] * threads if len(listed) else 0


class Pieces(NamedTuple):
    """What is the work of a block each."""

    entries: DeviceArray
    """(n, 4) int32, of the host or the target: row, place of the piece in the row, pieces of the row, and the row's
    number among those of several pieces. These rows stand first, and the pieces of a row side by side."""
    shared: int
    """Pieces of rows of several pieces."""
    shared_rows: int
    """Rows of several pieces."""


NO_PIECES = Pieces(np.empty((0, 4), np.int32), 0, 0)
"""Of a matrix without long rows."""


def piece_length(longest: int) -> int:
    """Give the most elements of a piece."""
    return max(_PIECE, longest)


def pieces_of_blocks(matrix: Csr, rows: int, longest: int) -> Pieces:
    """List what is the work of a block each: pieces of all rows of a group that has a row of more than ``longest``.

    Parameters
    ----------
    matrix : Csr
    rows : int
        Neighbouring rows of a group.
    longest : int

    Returns
    -------
    Pieces
        Longest rows come first; rows of equal length stand in A's order. O(I + n log n).
    """
    first = np.unique(np.flatnonzero(matrix.row_lengths > longest) // rows) * rows
    block_rows = (first[:, None] + np.arange(rows)).ravel()
    block_rows = block_rows[block_rows < matrix.num_rows]
    block_rows = block_rows[np.argsort(-matrix.row_lengths[block_rows], kind="stable")]
    return in_pieces(block_rows, matrix.row_lengths[block_rows], piece_length(longest))


def in_pieces(rows: NDArray[Any], lengths: NDArray[Any], piece: int) -> Pieces:
    """List the pieces of rows, (n,) with their lengths, that are cut after every ``piece`` elements. O(pieces).

    Rows stand in the order given, longest first, and a row without elements has one piece, too.
    """
    counts = np.maximum(1, -(-lengths // piece))
    at, places = numbered(counts)
    several = counts[counts > 1]
    entries = np.stack([rows[at], places, counts[at], at], axis=1).astype(np.int32)
    return Pieces(entries, int(several.sum()), several.size)


def mean_length(matrix: Csr) -> float:
    """Give the non-zeros of a mean row."""
    return matrix.nnz / max(1, matrix.num_rows)


def _mean_filled_length(matrix: Csr) -> float:
    """Give the non-zeros of a mean row among those that have any."""
    return matrix.nnz / max(1, matrix.filled_rows)


def lengths_to_split(matrix: Csr) -> tuple[int, ...]:
    """List the values of ``longest`` that are worth trying, rising: multiples of the mean, and last `UNSPLIT`."""
    most, mean = matrix.longest_row, _mean_filled_length(matrix)
    limits = {max(_LEAST_LONG, round(times * mean)) for times in _UNEVEN}
    return (*sorted(limit for limit in limits if limit < most), UNSPLIT)


def usual_length(matrix: Csr, times: int = _USUAL) -> int:
    """Give the value of ``longest`` by rule: a multiple of the mean row, or `UNSPLIT` where no row is longer."""
    most, usual = matrix.longest_row, max(_LEAST_LONG, round(times * _mean_filled_length(matrix)))
    return usual if usual < most else UNSPLIT


@cache
def load_of(width: int, dtype: DType) -> int:
    """Choose the elements of a load: as many as divide J, fit into 16 bytes and give four lanes something to do."""
    return widest_load(width, _LOAD_BYTES // dtype.itemsize, LANES[0])


@cache
def loads_whole(width: int, dtype: DType) -> bool:
    """Tell whether J allows loads of 16 bytes; only such loads may be two side by side or unrolled in two ways."""
    return load_of(width, dtype) * dtype.itemsize == _LOAD_BYTES


@cache
def _lanes(columns: int, vector: int, most: int) -> int:
    """Give the threads that cover some columns by one load each, or the most that there may be."""
    return next(n for n in LANES if n == most or n * vector >= columns)


def usual_schedule(problem: Problem) -> dict[str, Any]:
    """Give a schedule of `DirectPlan` without a search.

    In a small problem the rows leave most threads of a large GPU idle. A group then takes half of J, and as many parts
    as fill a warp and have at least two elements of a mean row. Elsewhere a group takes a tile of 512 bytes of a row of
    B, of 256 where a mean row is shorter than `SHORT`, by two loads side by side where J allows that, and as many rows
    as have four elements together.

    The rule was fitted to times of the tuning half (development runs on an H100).
    """
    matrix, width, mean = problem.matrix, problem.width, mean_length(problem.matrix)
    vector, whole = load_of(width, problem.dtype), loads_whole(width, problem.dtype)
    small = whole and mean >= UNROLL and 2 * _lanes(width, vector, WARP) * matrix.num_rows <= _AT_ONCE
    if small:
        threads = _lanes(ceil_div(width, 2), vector, WARP // 2)
        parts = max(n for n in PARTS if n == 1 or n <= min(WARP // threads, mean / 2))
        unroll = DEEP if parts == 1 and min(mean, threads) >= DEEP else UNROLL
        group = {"vectors": 1, "lanes": threads, "parts": parts, "unroll": unroll, "rows": 1}
    else:
        short = mean < SHORT
        vectors = 2 if whole and width >= 2 * vector * LANES[0 if short else -2] else 1
        tile = _SHORT_TILE if short and whole else _TILE
        threads = _lanes(ceil_div(width, vectors), vector, min(tile // _LOAD_BYTES // vectors, WARP))
        group = {"vectors": vectors, "lanes": threads, "rows": max([n for n in ROWS if n == 1 or n * mean <= UNROLL])}
    longest = usual_length(matrix, _USUAL_SMALL if small else _USUAL)  # last, since a device may be waited for
    return {**PLAIN, "vector": vector, **group, "longest": longest}
