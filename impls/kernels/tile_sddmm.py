"""The launcher of SDDMM over tiles: block tiles on the matrix unit and runs of non-zeros in one fused grid."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import BuildError
from spmark.impls.core.interfaces import Config, DeviceArray
from spmark.impls.core.problem import Problem, cut, grouped
from spmark.impls.formats.tiles import GROUP, Blocks, TileFormat
from spmark.impls.runtime.fusion import Share, fused
from spmark.impls.runtime.plan import Arrays, DevicePlan
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import C_TYPES, NARROW, Instance, KernelTemplate

HEIGHT = 16
"""Rows of a block tile."""
_THREADS = 128
_WARPS = _THREADS // 32


SDDMM_TILES = KernelTemplate(
    Path(__file__).parent / "tile_sddmm.cu",
    "sddmm_tiles",
    {"T": NARROW, "vector": (1, 2, 8), "lanes": (8, 16, 32), "batch": (2, 4), "threads": (_THREADS,)},
)


def tile_sddmm_instance(problem: Problem, schedule: Mapping[str, Any]) -> Instance:
    """Give the kernel of a schedule ``lanes, batch, groups``."""
    tunables = {"vector": _vector_of(problem), "lanes": schedule["lanes"], "batch": schedule["batch"]}
    return SDDMM_TILES.instance(T=C_TYPES[problem.dtype], **tunables, threads=_THREADS)


def _vector_of(problem: Problem) -> int:
    return next(v for v in (8, 2, 1) if problem.width % v == 0)


class TileSddmmPlan(DevicePlan):
    """D = (X Y^T at A's non-zeros) in 16 bits over a `TileFormat`, scaled by A where the problem is.

    The plan keeps only the places of the tiles' non-zeros. A's values are read where the problem is scaled, in the
    result's order.

    Parameters
    ----------
    problem : Problem
    target : Target
    tiled : TileFormat
        Block tiles of `HEIGHT` rows, runs, or both.
    config : mapping
        Facts for `DevicePlan.config`, to which the schedule below is added.
    **schedule : int
        - ``lanes, batch``: of runs, threads of a group, and non-zeros that a group takes at once;
        - ``groups``: groups of 16 columns that a warp takes one after the other;
        - ``in_tiles``: leave the result in the order of the tiles, which `order` then names: a warp's results stand
          together, and no positions are read. By default the result is in CSR order.

    Raises
    ------
    BuildError
        There are tiles of another height or ELL tiles, or the dtype is float32.
    """

    def __init__(self, problem: Problem, target: Target, tiled: TileFormat, config: Config, **schedule: int) -> None:
        if not problem.dtype.narrow or tiled.ell or set(tiled.blocks) - {HEIGHT}:
            raise BuildError(
                f"expected 16-bit floats, block tiles of {HEIGHT} rows and runs, found {problem.dtype}, blocks of "
                f"{[*tiled.blocks]} rows{' and ELL tiles' * bool(tiled.ell)}"
            )
        vector, in_tiles = _vector_of(problem), schedule.pop("in_tiles", False)
        super().__init__(problem, target, {**config, **schedule}, alignment=vector * problem.dtype.itemsize)
        self.stored = tiled.stored
        with self.phase("convert"):
            blocks = _block_arrays(tiled.blocks.get(HEIGHT), schedule["groups"])
            empty = np.empty(0, np.int32)
            runs = (tiled.runs.rows, tiled.runs.indices, tiled.runs.held) if tiled.runs else (empty, empty, empty)
            block_count, values = blocks[-1].size, problem.values
            if in_tiles:
                self.order = np.concatenate([blocks[-1], runs[-1]])
                blocks, runs, values = (*blocks[:-1], empty), (*runs[:-1], empty), values[self.order]
        on_device = [tuple(self.upload(array) for array in part) for part in (blocks, runs)]
        # Unscaled, no value is read: an empty array stands in.
        self._values = self.upload(values if problem.scaled else values[:0])
        items = ceil_div(runs[0].size, _THREADS // schedule["lanes"] * schedule["batch"])
        self._grid, self._args = fused(
            Share(blocks[0].shape[0] // _WARPS, 1, on_device[0]), Share(items, 1, on_device[1])
        )
        (self._kernel,) = self.load([tile_sddmm_instance(problem, schedule)])
        sizes = (problem.width, problem.scaled, not in_tiles, block_count, runs[0].size)
        self._sizes = tuple(np.int32(size) for size in sizes)

    def enqueue(self, operands: Arrays, out: DeviceArray) -> None:
        """Launch once, which writes every non-zero."""
        self._kernel.launch(self._grid, (*self._sizes, *self._args, self._values, *operands, out))


def strip_tasks(indptr: NDArray[np.int32], most: int) -> NDArray[np.int32]:
    """Cut panels into tasks of at most ``most`` groups.

    Parameters
    ----------
    indptr : (p + 1,) int32
        Groups of each panel.
    most : int

    Returns
    -------
    (4 n, 4) int32
        For each warp of n thread blocks: panel, first group, end of the groups, 0; or -1 four times, for nothing.
    """
    made = cut(indptr, np.diff(indptr), most)
    made[:, 2] += made[:, 1]
    return np.pad(made, ((0, -len(made) % _WARPS), (0, 0)), constant_values=-1)


def _block_arrays(blocks: Blocks | None, most: int) -> tuple[NDArray[np.generic], ...]:
    """Give the kernel's arrays: tasks, rows, columns, and every group's non-zeros."""
    if blocks is None:
        empty = np.empty(0, np.int32)
        return np.empty((0, 4), np.int32), empty, empty, empty, np.empty(0, np.uint8), empty
    group, slot = np.divmod(blocks.places, HEIGHT * GROUP)
    order, starts = grouped(group.astype(np.int32), blocks.indices.shape[0])
    return (
        strip_tasks(blocks.indptr, most),
        np.maximum(blocks.rows, 0).reshape(-1),
        blocks.indices.reshape(-1),
        starts,
        slot[order].astype(np.uint8),
        blocks.held[order],
    )
