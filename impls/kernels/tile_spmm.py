"""The launcher of SpMM over tiles: block tiles on the matrix unit and ELL rows in one fused grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import BuildError
from spmark.impls.core.interfaces import DeviceArray
from spmark.impls.core.problem import DType, Problem
from spmark.impls.formats.decompose import RowUse, row_use
from spmark.impls.formats.tiles import GROUP, Blocks, TileFormat
from spmark.impls.kernels.block_spmm import mma_pieces
from spmark.impls.kernels.composed import NO_ROW
from spmark.impls.kernels.ell_buckets import EMPTY_ROWS, NEVER, block_ranges, empty_ranges, numbered_rows
from spmark.impls.kernels.panel_spmm import transposed_pieces
from spmark.impls.kernels.shared_rows import SharedRows
from spmark.impls.runtime.fusion import Body, FusedLaunch, FusedTemplate, Share
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import TemplateValue

HEIGHT = 16
"""Rows of a block tile, as most are."""
HEIGHTS = (HEIGHT, 8)
"""Rows of block tiles that there are kernels for."""
AHEAD = {4: (4, 2), 8: (2, 1)}
"""Groups whose operands are on their way, by columns of a lane: as many as registers hold, and half as many."""
_WARP, _THREADS = 32, 128
_WARPS = _THREADS // _WARP
ALONE = (4, 16)
"""Groups of a panel that one warp takes by itself; of more the warps of a thread block take a part each. Few where the
panels are few, many where there are enough to keep all warps busy."""
MOST = 64
"""Groups of a warp, beyond which a panel is divided between thread blocks, which then add up atomically."""
_NO_ELL = {"vector": 8, "vectors": 1, "lanes": 8}
"""Of the kernels without ELL rows, where it makes no difference."""
_INT, _HALF = "int32", "float16"
_PANELS = tuple(Body(f"tile_blocks_{height}", (_INT, _INT, _HALF, _INT)) for height in HEIGHTS)
_ELL = Body("ell_buckets", (_INT, _INT, _INT, _HALF))


def _fits(values: Mapping[str, TemplateValue]) -> bool:
    """Give every J a tile: loads of half the width for the narrowest alone, two side by side for the wide alone.

    ELL rows take so many registers that fewer groups ahead make no room; without them nothing else differs.
    """
    most, fewer = AHEAD[int(values["columns"])]
    if not values["mixed"]:
        return values["ahead"] in {most, fewer} and all(values[k] == v for k, v in _NO_ELL.items())
    if values["columns"] == 4:
        return values["ahead"] == most and values["lanes"] == 8 and values["vectors"] == 1
    return values["ahead"] == most and values["vector"] == 8


SPMM_TILES = FusedTemplate(
    Path(__file__).parent / "tile_spmm.cu",
    "spmm_tiles",
    {
        "mixed": (False, True),
        "columns": (4, 8),
        "ahead": (1, 2, 4),
        "vector": (4, 8),
        "vectors": (1, 2),
        "lanes": (8, 16, 32),
        "threads": (_THREADS,),
    },
    legal=_fits,
    max_registers=128,
    max_spill_bytes=16,  # three registers less than the narrowest tile would take keep one more block resident
    bodies=(*_PANELS, _ELL),
)


class TileSpmmPlan(DevicePlan):
    """C = A B in float16 over a `TileFormat`.

    Parameters
    ----------
    problem : Problem
        J a multiple of 8.
    target : Target
    held : TileFormat
        Block tiles of `HEIGHTS` rows, ELL rows, or both.
    config : mapping
        What `DevicePlan.config` says; the schedule below is part of it.
    alone : int
        Groups of a panel that one warp takes by itself.
    shallow : bool
        Have the operands of half as many groups on their way as registers hold (`AHEAD`), so that more thread blocks
        fit. Without effect where there are ELL rows or rows without elements, whose body takes the registers.
    vector, vectors, lanes, work, spread, together : int
        Of the ELL rows, as of `spmark.impls.kernels.ell_buckets.EllBucketsPlan`.
    arrays : sequence of device arrays, optional
        `arrays` of another plan of the same format.

    Raises
    ------
    BuildError
        Tiles of another height, runs, or J without a kernel.
    """

    def __init__(
        self,
        problem: Problem,
        target: Target,
        held: TileFormat,
        config: Mapping[str, object],
        *,
        vector: int,
        lanes: int,
        work: int,
        vectors: int = 1,
        spread: int = NEVER,
        together: int = NEVER,
        alone: int = ALONE[0],
        shallow: bool = False,
        arrays: Sequence[DeviceArray] = (),
    ) -> None:
        if problem.width % 8 or problem.dtype is not DType.FLOAT16 or held.runs or set(held.blocks) - {*HEIGHTS}:
            raise BuildError(
                f"expected float16, J a multiple of 8, block tiles of {HEIGHTS} rows and ELL tiles, found "
                f"{problem.dtype}, {problem.width}, blocks of {[*held.blocks]} rows{' and runs' * bool(held.runs)}"
            )
        columns = 4 if problem.width <= 32 else 8
        schedule = {"vector": vector, "vectors": vectors, "lanes": lanes, "work": work}
        schedule |= {"spread": spread, "together": together, "alone": alone}
        super().__init__(problem, target, {**config, **schedule}, alignment=16)
        self.stored = held.stored
        with self.phase("convert"):
            blocks = [held.blocks.get(height) or _no_blocks(height) for height in HEIGHTS]
            tasks = [panel_tasks(part.indptr, alone) for part in blocks]
            use = _use(held, [np.repeat(b.rows, pieces, axis=0) for b, (_, pieces) in zip(blocks, tasks, strict=True)])
            targets = [_targets(part.rows, use) for part in blocks]
            groups = _THREADS // lanes
            ranges, rows = _ell_ranges(held, use, groups, work, _WARP // lanes, spread, together)
            mixed = ranges.shape[0] > 0
            self.config["ahead"] = ahead = AHEAD[columns][shallow and not mixed]
            lists = () if arrays else _elements(held, blocks)
        with self.phase("upload"):
            self.arrays = list(arrays) or [target.upload(array) for array in lists]
            self.device_bytes += sum(array.nbytes for array in self.arrays)
            shares = {}
            across = ceil_div(problem.width, 8 * columns)
            for i, body in enumerate(_PANELS):
                given = self.upload(tasks[i][0]), *self.arrays[2 * i : 2 * i + 2], self.upload(targets[i])
                shares[body.name] = Share(tasks[i][0].shape[0] // _WARPS, across, given)
            shares[_ELL.name] = Share(
                ranges.shape[0],
                ceil_div(problem.width, vector * vectors * lanes),
                (self.upload(ranges), self.upload(rows), *self.arrays[-2:]),
            )
            # Rows without elements are cleared by the grid itself.
            use = RowUse(use.num_rows, use.shared, empty=np.empty(0, np.int32))
            self._shared = SharedRows(self, use, problem.width, problem.dtype, 8)
        self.deterministic = use.shared.size == 0
        with self.phase("compile"):
            ell = {"vector": vector, "vectors": vectors, "lanes": lanes} if mixed else _NO_ELL
            tile = {"mixed": mixed, "columns": columns, "ahead": ahead, **ell, "threads": _THREADS}
            self._launch = FusedLaunch(target, SPMM_TILES.instance(**tile), shares)
        self._width = np.int32(problem.width)

    def enqueue(self, operands: Sequence[DeviceArray], out: DeviceArray) -> None:
        """Clear what is added up, compute in one grid, and round what was added up."""
        self._shared.before(out)
        self._launch.enqueue((self._width,), (operands[0], out, self._shared.sums), overlap=not self.deterministic)
        self._shared.after(out)


def panel_tasks(indptr: NDArray[np.int32], alone: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Deal panels out to warps: short ones to one each, long ones to all of a thread block, or of several.

    Parameters
    ----------
    indptr : (p + 1,) int32
        Groups of each panel, at least one.
    alone : int
        Most groups that one warp takes by itself.

    Returns
    -------
    tasks : (4 n, 4) int32
        For each warp of n thread blocks, longest work first: panel (-1: none), first group, end of the groups, 1 where
        the warps of the block share the panel.
    pieces : (p,) int64
        Thread blocks that add into each panel's rows.
    """
    counts = np.diff(indptr).astype(np.int64)
    pieces = np.maximum(1, -(-counts // (_WARPS * MOST)))
    order = np.argsort(-counts // pieces, kind="stable")
    long, short = order[counts[order] > alone], order[counts[order] <= alone]
    panel = np.repeat(long, pieces[long])
    piece = np.arange(panel.size) - np.repeat(np.cumsum(pieces[long]) - pieces[long], pieces[long])
    # The part of each warp: cut between 0 and 1 of the panel.
    part = piece[:, None] * _WARPS + np.arange(_WARPS + 1)
    bounds = indptr[panel, None] + part * counts[panel, None] // (_WARPS * pieces[panel, None])
    tasks = np.zeros((panel.size + ceil_div(short.size, _WARPS), _WARPS, 4), np.int32)
    shared = tasks[: panel.size]
    shared[:, :, 0], shared[:, :, 1], shared[:, :, 2], shared[:, :, 3] = (
        panel[:, None],
        bounds[:, :-1],
        bounds[:, 1:],
        1,
    )
    single = tasks[panel.size :].reshape(-1, 4)
    single[:, 0] = -1
    single[: short.size] = np.stack([short, indptr[short], indptr[short + 1], np.zeros_like(short)], axis=1)
    return tasks.reshape(-1, 4), pieces


def _no_blocks(height: int) -> Blocks:
    nothing = np.empty(0, np.int32)
    return Blocks(
        np.empty((0, height), np.int32),
        np.zeros(1, np.int32),
        np.empty((0, GROUP), np.int32),
        np.empty((0, height, GROUP), np.float32),
        nothing,
        np.empty(0, np.int64),
    )


def _use(held: TileFormat, panels: list[NDArray[np.int32]]) -> RowUse:
    """Find who shares rows; of a panel that several thread blocks take the rows are listed for each."""
    every = [rows[rows >= 0] for rows in panels]
    if held.ell:
        every.append(held.ell.rows[held.ell.rows >= 0])
    return row_use(held.shape[0], every)


def _targets(rows: NDArray[np.int32], use: RowUse) -> NDArray[np.int32]:
    targets = np.full(rows.shape, NO_ROW, np.int32)
    real = rows >= 0
    targets[real] = use.targets(rows[real], numbered=True)
    return targets


def _ell_ranges(  # noqa: PLR0917
    held: TileFormat, use: RowUse, groups: int, work: int, team: int, spread: int, together: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Give the ranges of ELL rows and of rows without elements, and the target of each."""
    ranges, rows = np.empty((0, 4), np.int32), np.empty(0, np.int32)
    if held.ell:
        ranges = block_ranges(held.ell, groups, work, team=team, spread=spread, together=together)
        rows = numbered_rows(held.ell, use.shared)
    empty = empty_ranges(rows.size, use.empty.size, groups * EMPTY_ROWS)
    return np.concatenate([ranges, empty]), np.concatenate([rows, use.empty])


def _elements(held: TileFormat, blocks: list[Blocks]) -> tuple[NDArray[np.generic], ...]:
    """Give columns and values of blocks, in the order of the unit's registers, and of ELL rows."""
    ell = (held.ell.indices, held.ell.values) if held.ell else (np.empty(0, np.int32), np.empty(0, np.float32))
    panels: list[NDArray[np.generic]] = []
    for part in blocks:
        ordered = mma_pieces if part.values.shape[1] == HEIGHT else transposed_pieces
        panels += [part.indices.reshape(-1), ordered(part.values).reshape(-1)]
    return *panels, ell[0], ell[1].astype(np.float16)
