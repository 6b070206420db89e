"""Kernels of random matrices measured on a device, for the rank model (LO-SpMM, sections 3.5 and 7, table 3).

The ranges are the paper's, with J up to that of the widest layer. A few kernels of each problem are assembled, and each
kernel serves many tile sizes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.digest import implementation_version
from spmark.impls.core.errors import CompileError, DatasetError
from spmark.impls.core.frozen import Frozen
from spmark.impls.core.problem import Csr, Op, Problem
from spmark.impls.core.recordfile import read_rows
from spmark.impls.formats.threads import cores
from spmark.impls.lo_spmm.assemble import assemble
from spmark.impls.lo_spmm.constraints import register_cap
from spmark.impls.lo_spmm.features import FEATURES
from spmark.impls.lo_spmm.kernel import TileSchedule, UnrolledKernel, make_tiles
from spmark.impls.lo_spmm.reorder import Reordering
from spmark.impls.lo_spmm.search import Pins, TileSpace, explore
from spmark.impls.lo_spmm.space import TileSize
from spmark.impls.lo_spmm.tuning import config_of
from spmark.impls.runtime.compile_pool import side_by_side
from spmark.impls.study.rows import Row, one_device
from spmark.impls.study.shards import append_rows
from spmark.impls.tuning.race import Race
from spmark.impls.tuning.strategies import by_turns

ROWS = (64, 2048)
"""I and K of a problem, both ends included."""
WIDTHS = (512, 50_176)
"""J."""
NNZ = (500, 50_000)
SPARSITIES = (0.7, 0.8, 0.9, 0.95, 0.98)
GROUPS = 400
KERNELS = 2
LAUNCHES = 16
"""Tile sizes of a kernel that are timed."""
_WORKERS = 4
"""Assemblers of each problem: the largest of a batch has a hundred times the instructions of the smallest."""
_PREPARED = 32
"""Problems whose kernels are assembled, side by side, before these are measured."""


class TriedTile(Frozen):
    """A candidate with its times."""

    tile_rows: int
    threads: int
    cpt: int
    tiles_per_block: int
    features: tuple[float, ...]
    samples_us: tuple[float, ...] = ()
    reason: str = ""


class TileLabels(Row):
    """A line of a file of labels: one problem."""

    seed: int
    """Seed of `synthetic`."""
    matrix_hash: str
    num_rows: int
    num_cols: int
    nnz: int
    width: int
    device: str
    features: tuple[str, ...] = FEATURES
    candidates: int
    """Candidates that passed the constraints; ``tried`` is a sample of them."""
    tried: tuple[TriedTile, ...]
    spent_s: float
    implementation_version: str = ""


def synthetic(seed: int) -> Problem:
    """Draw a problem: logarithms of J, of the non-zeros and of I / K are uniform, and the sparsity is one of five.

    Places are a uniform sample without replacement. Weights lie between 0.5 and 1, as in every test of the suite.
    """
    rng = np.random.default_rng([seed, 4])
    width = int(np.exp(rng.uniform(*np.log(WIDTHS)))) // 4 * 4
    density = 1 - SPARSITIES[int(rng.integers(len(SPARSITIES)))]
    area = np.exp(rng.uniform(*np.log(NNZ))) / density
    ratio = np.exp(rng.uniform(-2, 2))
    rows, cols = (int(np.clip(round(side), *ROWS)) for side in (np.sqrt(area * ratio), np.sqrt(area / ratio)))
    count = max(1, int(density * rows * cols))
    kept = np.sort(rng.choice(rows * cols, count, replace=False))
    indptr = np.searchsorted(kept, np.arange(rows + 1) * cols).astype(np.int32)
    values = rng.uniform(0.5, 1, count).astype(np.float32)
    return Problem(Op.SPMM, Csr.checked((rows, cols), indptr, (kept % cols).astype(np.int32), values), width)


def drawn(space: TileSpace, seed: int) -> list[list[TileSize]]:
    """Draw `KERNELS` pairs of M1 and columns of a thread, and up to `LAUNCHES` candidates of each."""
    rng = np.random.default_rng([seed, 5])
    kernels: dict[tuple[int, int], list[TileSize]] = {}
    for size in space.survivors.sizes:
        kernels.setdefault((size.tile_rows, size.cpt), []).append(size)
    chosen = [list(kernels.values())[at] for at in sorted(rng.permutation(len(kernels))[:KERNELS])]
    return [[sizes[at] for at in sorted(rng.permutation(len(sizes))[:LAUNCHES])] for sizes in chosen]


def prepare(seed: int, device: DeviceSpec) -> TileSpace:
    """Search a problem's space and assemble the kernels to measure, which needs no GPU.

    A kernel that cannot be assembled gets its reason when it is measured.
    """
    space = explore(synthetic(seed), device, Reordering.GREEDY, Pins())
    for sizes in drawn(space, seed):
        rows, cpt = sizes[0].tile_rows, sizes[0].cpt
        tiles = make_tiles(space.problem.matrix, space.problem.values, space.dealt(rows).rows)
        schedule = TileSchedule(cpt, space.pins.depth(rows, cpt))
        kernel = UnrolledKernel(tiles, np.arange(len(tiles), dtype=np.int32), space.problem.width, schedule)
        with suppress(CompileError):
            assemble(kernel, device.arch, register_cap(rows, cpt, schedule.prefetch), workers=_WORKERS)
    return space


def measure(seed: int, space: TileSpace, race: Race[Any]) -> TileLabels:
    """Time the drawn candidates of a prepared problem."""
    started = time.monotonic()
    groups = drawn(space, seed)
    by_turns(race, [list(map(config_of, sizes)) for sizes in groups])
    tried: list[TriedTile] = []
    for size in (size for sizes in groups for size in sizes):
        config = {name: getattr(size, name) for name in ("tile_rows", "threads", "cpt", "tiles_per_block")}
        seen, features = race.candidate(config_of(size)), tuple(space.features(size).tolist())
        tried.append(TriedTile(**config, features=features, samples_us=seen.samples_us, reason=seen.reason))
    problem = space.problem
    return TileLabels(
        seed=seed,
        matrix_hash=problem.matrix.hash,
        num_rows=problem.matrix.num_rows,
        num_cols=problem.matrix.num_cols,
        nnz=problem.matrix.nnz,
        width=problem.width,
        device=space.device.name,
        candidates=len(space.survivors.sizes),
        tried=tuple(tried),
        spent_s=round(time.monotonic() - started, 3),
        implementation_version=implementation_version("lo_spmm"),
    )


def label_all(
    path: Path,
    seeds: Iterable[int],
    make_space: Callable[[int], TileSpace],
    open_race: Callable[[TileSpace], Race[Any]],
    ends: float,
) -> tuple[int, int]:
    """Label the problems that have no row yet, in this file or in another shard's beside it.

    Parameters
    ----------
    path : Path
        File of labels, ``shard*.jsonl``, appended to; each row is on disk before the next problem begins.
    seeds : iterable of int
    make_space : callable
        `prepare` on a device.
    open_race : callable
        Gives a problem's race of tile sizes.
    ends : float
        Time of the monotonic clock after which no problem is begun.

    Returns
    -------
    made, left : int
        Rows written, and problems that still have no row.
    """
    have = {row.seed for file in path.parent.glob("shard*.jsonl") for row in read_rows(file, TileLabels)}
    wanted = [seed for seed in seeds if seed not in have]
    spaces = _prepared(wanted, make_space, ends)
    made = append_rows(path, spaces, lambda seed, space: measure(seed, space, open_race(space)), ends)
    return made, len(wanted) - made


def _prepared(
    seeds: Sequence[int], make_space: Callable[[int], TileSpace], ends: float
) -> Iterator[tuple[int, TileSpace | str]]:
    """Prepare a whole batch of problems before the first is timed: a thread that writes PTX holds up launches."""
    for start in range(0, len(seeds), _PREPARED):
        if time.monotonic() >= ends:
            return
        batch = seeds[start : start + _PREPARED]
        yield from zip(batch, side_by_side(make_space, batch, cores()), strict=True)


def read_labels(paths: Sequence[Path]) -> list[TileLabels]:
    """Read files of labels, one row a problem.

    Raises
    ------
    DatasetError
        The labels are missing, of several devices, or of another order of features.
    RecordError
        A line is not a label.
    """
    rows = list({row.seed: row for path in paths for row in read_rows(path, TileLabels)}.values())
    one_device(row.device for row in rows)
    other = next((row.features for row in rows if row.features != FEATURES), None)
    if other is not None:
        raise DatasetError(f"expected features {', '.join(FEATURES)}, found {', '.join(other)}; measure labels again")
    return rows
