"""The schedules of SpMM straight from CSR that a search may try, and those with which it begins.

The launcher is `spmark.impls.kernels.direct_spmm`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import DType, Problem
from spmark.impls.kernels import direct_spmm
from spmark.impls.kernels.direct_spmm import DEEP, LANES, PLAIN, ROWS, SHORT, TUNABLES, UNROLL, WARP
from spmark.impls.kernels.family import Axes, KernelFamily, OneFormat, tiles_of

DIRECT: Mapping[str, str] = {"format": "direct"}
"""What a config of `DirectPlan` says beside its schedule where a search compares formats."""
_MOST_TILES, _DEEP_TILES = 6, 2
"""Tiles of `direct_starts`, and tiles of `direct_deep`."""


def is_direct(config: Mapping[str, Any]) -> bool:
    """Tell whether a config of a search among formats belongs to `DirectPlan`."""
    return config.get("format") == DIRECT["format"]


def direct_tiles(width: int, dtype: DType) -> list[dict[str, int]]:
    """List tiles of `DirectPlan` that J fills, widest first; of equally wide tiles the one with more lanes comes first.

    Two loads stand side by side only where a load has 16 bytes.
    """
    vectors = (1, 2) if direct_spmm.loads_whole(width, dtype) else (1,)
    tiles = tiles_of(width, (direct_spmm.load_of(width, dtype),), LANES, vectors)
    return sorted(tiles, key=lambda tile: (-tile["lanes"] * tile["vectors"], tile["vectors"]))


def direct_starts(problem: Problem) -> list[dict[str, int]]:
    """List the schedules of `DirectPlan` with which a search begins: the widest tiles, one row a group."""
    tiles = direct_tiles(problem.width, problem.dtype)[:_MOST_TILES]
    return [{**PLAIN, "longest": direct_spmm.usual_length(problem.matrix), **tile} for tile in tiles]


def direct_deep(problem: Problem) -> list[dict[str, int]]:
    """List what makes a schedule of `DirectPlan` deep: many rows of B on their way for one row of A, for each tile.

    A small problem has more threads than rows, and waits for memory once for each ``parts * unroll`` elements of a row.
    The list is empty where loads are narrow or rows are shorter than the usual depth.
    """
    if not direct_spmm.loads_whole(problem.width, problem.dtype) or direct_spmm.mean_length(problem.matrix) < UNROLL:
        return []
    tiles = tiles_of(problem.width, (direct_spmm.load_of(problem.width, problem.dtype),), LANES)
    return [
        {"vectors": 1, "lanes": lanes, "rows": 1, "parts": parts, "unroll": unroll}
        for lanes in [tile["lanes"] for tile in tiles[-_DEEP_TILES:]]
        for parts, unroll in ((1, DEEP), (WARP // lanes, UNROLL), (WARP // 2 // lanes, UNROLL))
        if (lanes >= DEEP if unroll == DEEP else parts > 1)
    ]


def _axes(problem: Problem, _: Config) -> Axes:
    """Give the tiles that J fills, several rows a group where rows are short, and the template's other values."""
    matrix = problem.matrix
    tiles = direct_tiles(problem.width, problem.dtype)
    return {
        "tile": tiles,
        "rows": ROWS if direct_spmm.mean_length(matrix) < SHORT else ROWS[:1],
        **{name: values for name, values in TUNABLES.items() if name not in tiles[0]},
        "longest": tuple(dict.fromkeys((direct_spmm.usual_length(matrix), *direct_spmm.lengths_to_split(matrix)))),
    }


DIRECT_SPMM = KernelFamily(
    mark="longest",
    axes=_axes,
    opened=lambda problem, target: OneFormat(
        tuple(DIRECT),
        lambda _: None,
        lambda _, facts, schedule, arrays: direct_spmm.DirectPlan(problem, target, facts, arrays=arrays, **schedule),
    ),
    default=lambda problem, _: direct_spmm.usual_schedule(problem),
    kernel=direct_spmm.direct_instance,
)
