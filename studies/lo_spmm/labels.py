"""Kernels of random matrices and of pruned layers measured on a device, for the rank model and for the estimate.

The rank model learns from random matrices alone (LO-SpMM, sections 3.5 and 7, table 3). Their ranges are the paper's,
with J up to that of the widest layer. A few kernels of each problem are assembled; each serves many tile sizes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.digest import implementation_version
from spmark.impls.core.errors import CompileError, DatasetError
from spmark.impls.core.problem import Csr, Op, Problem
from spmark.impls.core.untrusted import Frozen
from spmark.impls.formats.threads import cores
from spmark.impls.lo_spmm.assemble import assemble
from spmark.impls.lo_spmm.constraints import register_cap
from spmark.impls.lo_spmm.estimate import work_of
from spmark.impls.lo_spmm.kernel import TileSchedule, UnrolledKernel
from spmark.impls.lo_spmm.parts import tiles_of
from spmark.impls.lo_spmm.rank import FEATURES, features_of
from spmark.impls.lo_spmm.reorder import Reordering
from spmark.impls.lo_spmm.search import Pins, TileSpace, explore
from spmark.impls.lo_spmm.space import TileSize
from spmark.impls.lo_spmm.tuning import by_kernel, config_of, kernel_of
from spmark.impls.runtime.compile import side_by_side
from spmark.impls.tuning.race import Race
from spmark.impls.tuning.strategies import by_turns
from spmark.records.rowfile import read_rows
from spmark.studies.rows import Row, append_rows, one_device

ROWS = (64, 2048)
"""I and K of a problem, both ends included."""
WIDTHS = (512, 50_176)
"""J."""
NNZ = (500, 50_000)
SPARSITIES = (0.7, 0.8, 0.9, 0.95, 0.98)
LAYER_WIDTHS = (128, 512)
"""J of a pruned layer."""
LAYER_NNZ = 150_000
"""Most non-zeros of a pruned layer: the seconds of assembling a kernel grow with them."""
GROUPS = 400
KERNELS = 2
LAUNCHES = 16
"""Tile sizes of a kernel that are timed."""
_DIGITS = 7
"""Digits of a candidate's work in a row."""
_WORKERS = 4
"""Assemblers of each problem: the largest of a batch has a hundred times the instructions of the smallest."""
_PREPARED = 32
"""Problems whose kernels are assembled, side by side, before these are measured."""


Key = tuple[str, int]
"""A pruned layer and J, or an empty name and the seed of `synthetic`."""


class TriedTile(Frozen):
    """A candidate with its times."""

    tile_rows: int
    threads: int
    cpt: int
    tiles_per_block: int
    split: int = 1
    features: tuple[float, ...]
    work: tuple[float, ...] = ()
    """Fields of `spmark.impls.lo_spmm.estimate.Work`, in their order; rows of before have none."""
    samples_us: tuple[float, ...] = ()
    reason: str = ""


class TileLabels(Row):
    """A line of a file of labels: one problem."""

    matrix: str = ""
    """``source/name`` of a pruned layer; empty for a problem of `synthetic`."""
    seed: int
    """Seed of `synthetic` and of `drawn`; J for a pruned layer."""
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

    @property
    def key(self) -> Key:
        """What the row is of."""
        return self.matrix, self.seed


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
    """Draw `KERNELS` kernels of a problem, and up to `LAUNCHES` candidates of each."""
    rng = np.random.default_rng([seed, 5])
    kernels = by_kernel(space.survivors.sizes)
    chosen = [kernels[at] for at in sorted(rng.permutation(len(kernels))[:KERNELS])]
    return [[sizes[at] for at in sorted(rng.permutation(len(sizes))[:LAUNCHES])] for sizes in chosen]


def prepare(key: Key, device: DeviceSpec, layers: Mapping[str, Csr]) -> TileSpace:
    """Search a problem's space and assemble the kernels to measure, which needs no GPU.

    A kernel that cannot be assembled gets its reason when it is measured. Columns of a pruned layer may be cut, as the
    estimate's search cuts them; the rank model does not know of parts.
    """
    name, seed = key
    problem = Problem(Op.SPMM, layers[name], seed) if name else synthetic(seed)
    space = explore(problem, device, Reordering.GREEDY, Pins(split=0 if name else 1))
    for sizes in drawn(space, seed):
        rows, cpt, split = kernel_of(sizes[0])
        tiles = tiles_of(problem, space.dealt(rows).rows, split)
        schedule, dispatch = TileSchedule(cpt, space.pins.depth(rows, cpt)), np.arange(len(tiles), dtype=np.int32)
        kernel = UnrolledKernel(tiles, dispatch, problem.width, schedule, followed=split > 1)
        with suppress(CompileError):
            assemble(kernel, device.arch, register_cap(rows, cpt, schedule.prefetch), workers=_WORKERS)
    return space


def measure(key: Key, space: TileSpace, race: Race[Any]) -> TileLabels:
    """Time the drawn candidates of a prepared problem."""
    started, (name, seed) = time.monotonic(), key
    groups = drawn(space, seed)
    by_turns(race, [list(map(config_of, sizes)) for sizes in groups])
    tried = []
    for size in chain(*groups):
        seen = race.candidate(config_of(size))
        features = features_of(space, [size])[0].tolist()
        told = {"features": features, "samples_us": seen.samples_us, "reason": seen.reason}
        work = [float(f"{amount:.{_DIGITS}g}") for amount in astuple(work_of(space, size))]
        tried.append(TriedTile.model_validate({**vars(size), **told, "work": work}))
    matrix = space.problem.matrix
    return TileLabels(
        matrix=name,
        seed=seed,
        matrix_hash=matrix.hash,
        num_rows=matrix.num_rows,
        num_cols=matrix.num_cols,
        nnz=matrix.nnz,
        width=space.problem.width,
        device=space.device.name,
        candidates=len(space.survivors.sizes),
        tried=tuple(tried),
        spent_s=round(time.monotonic() - started, 3),
        implementation_version=implementation_version("lo_spmm"),
    )


def label_all(
    path: Path,
    keys: Iterable[Key],
    make_space: Callable[[Key], TileSpace],
    open_race: Callable[[TileSpace], Race[Any]],
    ends: float,
) -> tuple[int, int]:
    """Label the problems that have no row yet, in this file or in another shard's beside it.

    Parameters
    ----------
    path : Path
        File of labels, ``shard*.jsonl``, appended to; each row is on disk before the next problem begins.
    keys : iterable of (str, int)
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
    have = {row.key for file in path.parent.glob("shard*.jsonl") for row in read_rows(file, TileLabels)}
    wanted = [key for key in keys if key not in have]
    spaces = _prepared(wanted, make_space, ends)
    made = append_rows(path, spaces, lambda key, space: measure(key, space, open_race(space)), ends)
    return made, len(wanted) - made


def _prepared(
    keys: Sequence[Key], make_space: Callable[[Key], TileSpace], ends: float
) -> Iterator[tuple[Key, TileSpace | str]]:
    """Prepare a whole batch of problems before the first is timed: a thread that writes PTX holds up launches."""
    for start in range(0, len(keys), _PREPARED):
        if time.monotonic() >= ends:
            return
        batch = keys[start : start + _PREPARED]
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
    rows = list({row.key: row for path in paths for row in read_rows(path, TileLabels)}.values())
    one_device(row.device for row in rows)
    other = next((row.features for row in rows if row.features != FEATURES), None)
    if other is not None:
        raise DatasetError(f"expected features {', '.join(FEATURES)}, found {', '.join(other)}; measure labels again")
    return rows
