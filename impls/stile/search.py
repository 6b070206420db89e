"""The search: which tiles a matrix is divided into, for one operator, width and calibrated GPU.

Fang, Shen, Wang and Chen, "STile", SIGMOD 2024, section 3. A mixture of formats, blocks alone and the other format
alone are searched, and the plan that is predicted fastest is kept. The paper's mode does so for every part of J and for
several divisions of the columns. The search needs a `Calibration` and no device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import UnsupportedError
from spmark.impls.core.problem import Csr, Op
from spmark.impls.formats.threads import SHARE, cores, run_all
from spmark.impls.formats.tiles import BLOCK, ELL, RUN, Selection
from spmark.impls.stile.calibration import Calibration
from spmark.impls.stile.greedy import PickedTiles
from spmark.impls.stile.mixture import Mixture, Piece, spent_ms
from spmark.impls.stile.space import Formats, Rules, SearchMode, parts_of, shapes_of, widest_bucket
from spmark.impls.stile.windows import Once, Tiled

DIVISIONS = (1, 2, 4)
"""Numbers of column ranges that the paper's mode tries."""


@dataclass(frozen=True, eq=False)
class Tiling:
    """Tiles that a search chose."""

    selection: Selection
    predicted_ms: float
    """Time by the cost model: the cost of all tiles, over all multiprocessors evenly (definition 6)."""
    formats: Formats
    """The formats that are mixed."""
    part: int
    """Part of J of a tile."""
    divisions: int
    """Column ranges."""
    levels: int
    withdrawn: int
    """Tiles that were picked and replaced."""

    @cached_property
    def widest(self) -> int:
        """Widest ELL tile; 0 where there is none."""
        return int(self.selection.width[self.selection.kind == ELL].max(initial=0))

    @cached_property
    def has_blocks(self) -> bool:
        """Whether there are block tiles."""
        return bool((self.selection.kind == BLOCK).any())

    @property
    def facts(self) -> dict[str, Any]:
        """Facts of the tiles for a plan's config."""
        return {
            "formats": str(self.formats),
            "part": self.part,
            "divisions": self.divisions,
            "widest": self.widest,
            "levels_used": self.levels,
            "withdrawn": self.withdrawn,
            "predicted_us": round(self.predicted_ms * 1e3, 4),
        }


class _Job(NamedTuple):
    """A part of a search that is independent of the other parts."""

    number: int
    """Number of the search."""
    rules: Rules
    """Rules of the search, for one mixture."""
    widest: int
    """Most non-zeros of a row of an ELL tile; 0 for the public code's estimate."""
    part: int
    divisions: int


def forms_of(matrix: Csr, asked: Sequence[tuple[Rules, int]], calibration: Calibration, width: int) -> list[Tiling]:
    """Search by several rules, all at once where the matrix is worth threads.

    Parameters
    ----------
    matrix : Csr
    asked : sequence of Rules and int
        Rules, and most non-zeros of a row of an ELL tile, a power of two; 0 for the public code's estimate. A mixture
        is compared with both formats alone; a single format is searched as it is.
    calibration : Calibration
        Gives the costs, and the operator and dtype that are searched for.
    width : int
        J.

    Returns
    -------
    list of Tiling
        By each of the rules the best plan of every mixture, the one predicted fastest first: the paper builds all three
        and keeps the one that is measured fastest (section 3.3). Tilings with formats and widest ELL tile of an earlier
        one are left out. Found in O(rounds (windows + tiles) + levels nnz); deterministic.

    Raises
    ------
    UnsupportedError
        Blocks are asked for, and the calibration has none.
    """
    once, jobs = Once(), _jobs(matrix, asked, calibration, width)
    # Light tiles alone take no time beside all others.
    long = {(job.number, job.rules.formats) for job in jobs if job.rules.formats != Formats.OTHER}
    tiled = Tiled.of(matrix, max(1, cores() // max(1, len(long))))

    def run(job: _Job) -> tuple[float, list[Piece]]:
        rules = job.rules
        given = job.part, matrix.nnz, rules.mode, job.widest
        shapes = once.get(given, lambda: shapes_of(calibration, width, *given))
        if rules.formats == Formats.OTHER:
            # Tiles of one level overlap only at the ends of widths, so that all tiles of a shape are taken at once.
            rules = replace(rules, local_search=math.inf)
            shapes = replace(shapes, heights=(), single_ms=shapes.single_ms[:0], plain_ms=shapes.plain_ms[:0])
        pieces = Mixture(tiled, shapes, rules).pieces(job.divisions)
        return spent_ms(pieces) * shapes.repeats / calibration.num_sms, pieces

    longest_first = sorted(jobs, key=lambda job: job.rules.formats == Formats.OTHER)
    found_of = map(run, longest_first) if matrix.nnz < SHARE else run_all(run, [(job,) for job in longest_first])
    done: dict[_Job, tuple[float, list[Piece]]] = dict(zip(longest_first, found_of, strict=True))
    best = dict[tuple[int, str], Tiling]()
    for job in sorted(jobs, key=lambda job: (job.number, done[job][0])):
        if (job.number, job.rules.formats) not in best:
            best[job.number, job.rules.formats] = _tiling(matrix, job, *done[job], calibration.op)
    forms = dict[tuple[str, int], Tiling]()
    for one in best.values():
        forms.setdefault((one.formats, one.widest), one)
    return list(forms.values())


def _jobs(matrix: Csr, asked: Sequence[tuple[Rules, int]], calibration: Calibration, width: int) -> list[_Job]:
    """List the parts of all searches, without those that would find the tiles of an earlier part."""
    jobs: list[_Job] = []
    seen: set[object] = set()
    for number, (rules, widest) in enumerate(asked):
        divides = rules.mode == SearchMode.PAPER and calibration.op is Op.SPMM and matrix.num_cols >= DIVISIONS[-1]
        ways = list(product(parts_of(calibration, width, rules.mode), DIVISIONS if divides else (1,)))
        for formats in _mixtures(rules, calibration):
            own = replace(rules, formats=formats)
            reach = _reach(matrix, calibration, formats, widest)
            key: object = (number, formats) if reach is None else (own, reach)
            if key not in seen:
                seen.add(key)
                jobs += [_Job(number, own, widest, *way) for way in ways]
    return jobs


def _reach(matrix: Csr, calibration: Calibration, formats: str, widest: int) -> int | None:
    """Give the width of the widest light tile where the matrix alone decides this width; else None."""
    if formats == Formats.MIXED or calibration.op is not Op.SPMM:
        return None
    if formats == Formats.BLOCKS:
        return 0
    widest = widest or widest_bucket(matrix.nnz, calibration.num_sms)
    longest = int(matrix.row_lengths.max(initial=1))
    return min(widest, 1 << (longest - 1).bit_length())


def _mixtures(rules: Rules, calibration: Calibration) -> tuple[str, ...]:
    """List the mixtures that are searched, the surest first."""
    alone = rules.formats != Formats.MIXED or rules.keep_mixture
    if alone and rules.formats != Formats.OTHER and not calibration.blocks:
        raise UnsupportedError(
            f"{calibration.device}: expected costs of block tiles for {calibration.op} in {calibration.dtype}, found "
            "none: calibrate them (spmark study calibrate stile), or search other formats"
        )
    if alone:
        return (rules.formats,)
    return (Formats.OTHER, Formats.MIXED, Formats.BLOCKS) if calibration.blocks else (Formats.OTHER,)


def _tiling(matrix: Csr, job: _Job, predicted_ms: float, pieces: list[Piece], op: Op) -> Tiling:
    return Tiling(
        _selection(matrix.nnz, pieces, ELL if op is Op.SPMM else RUN),
        predicted_ms=predicted_ms,
        formats=Formats(job.rules.formats),
        part=job.part,
        divisions=len(pieces),
        levels=max(piece.picked.levels for piece in pieces),
        withdrawn=sum(piece.picked.withdrawn for piece in pieces),
    )


def _selection(nnz: int, pieces: list[Piece], light: int) -> Selection:
    """Give numbers to the tiles that have non-zeros, and to the windows of blocks, through all column ranges."""
    owner = np.zeros(nnz, np.int32)
    parts, rows = [], []
    first_tile, first_window = 0, 0
    tallest = max(int(picked.height[~picked.light].max(initial=1)) for _, picked in pieces)
    for where, picked in pieces:
        used = picked.used
        number = np.zeros(picked.light.size, np.int32)
        number[used] = first_tile + np.arange(used.size, dtype=np.int32)
        owner[where] = number[picked.owner]
        block, height = ~picked.light[used], picked.height[used]
        keys = picked.window[used].astype(np.int64) * (tallest + 1) + height
        windows, of = np.unique(keys[block], return_inverse=True)
        window = np.full(used.size, -1, np.int32)
        window[block] = first_window + of
        parts.append((np.where(block, BLOCK, light).astype(np.int8), height, picked.width[used], window))
        rows.append(_window_rows(picked, *np.divmod(windows, tallest + 1), tallest))
        first_tile, first_window = first_tile + used.size, first_window + windows.size
    kind, height, width, window = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Selection(owner, kind, height, width, window, np.concatenate(rows))


def _window_rows(
    picked: PickedTiles, number: NDArray[np.int64], height: NDArray[np.int64], tallest: int
) -> NDArray[np.int32]:
    slot = np.arange(tallest)
    at = number[:, None] * height[:, None] + slot
    inside = (slot < height[:, None]) & (at < picked.order.size)
    return np.where(inside, picked.order[np.where(inside, at, 0)], -1).astype(np.int32)
