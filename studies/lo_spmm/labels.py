"""Kernels of random matrices measured on a device, for the rank model (LO-SpMM, sections 3.5 and 7, table 3).

The ranges of the matrices are the paper's, with J up to that of the widest layer. A few kernels of each problem are
assembled; each serves many tile sizes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from spmark.impls.core.digest import implementation_version
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.problem import Csr, Op, Problem
from spmark.impls.core.untrusted import Frozen
from spmark.impls.lo_spmm.rank import FEATURES, features_of
from spmark.impls.lo_spmm.search import TileSpace
from spmark.impls.lo_spmm.space import TileSize
from spmark.impls.lo_spmm.tuning import by_kernel, config_of
from spmark.impls.tuning.race import Race
from spmark.impls.tuning.strategies import by_turns
from spmark.records.rowfile import read_rows
from spmark.studies.rows import Row, one_device

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


class TriedTile(Frozen):
    """A candidate with its times."""

    tile_rows: int
    threads: int
    cpt: int
    tiles_per_block: int
    split: int = 1
    features: tuple[float, ...]
    work: tuple[float, ...] = ()
    """Fields of `spmark.impls.lo_spmm.estimate.Work` in rows of before; nothing reads them."""
    samples_us: tuple[float, ...] = ()
    reason: str = ""


class TileLabels(Row):
    """A line of a file of labels: one problem."""

    matrix: str = ""
    """``source/name`` of a pruned layer in rows of before; empty for a problem of `synthetic`."""
    seed: int
    """Seed of `synthetic` and of `drawn`."""
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
    """Draw `KERNELS` kernels of a problem, and up to `LAUNCHES` candidates of each."""
    rng = np.random.default_rng([seed, 5])
    kernels = by_kernel(space.survivors.sizes)
    chosen = [kernels[at] for at in sorted(rng.permutation(len(kernels))[:KERNELS])]
    return [[sizes[at] for at in sorted(rng.permutation(len(sizes))[:LAUNCHES])] for sizes in chosen]


def measure(seed: int, space: TileSpace, race: Race[Any]) -> TileLabels:
    """Time the drawn candidates of the problem that `synthetic` gives for a seed."""
    started = time.monotonic()
    groups = drawn(space, seed)
    by_turns(race, [list(map(config_of, sizes)) for sizes in groups])
    tried = []
    for size in chain(*groups):
        seen = race.candidate(config_of(size))
        features = features_of(space, [size])[0].tolist()
        told = {"features": features, "samples_us": seen.samples_us, "reason": seen.reason}
        tried.append(TriedTile.model_validate({**vars(size), **told}))
    matrix = space.problem.matrix
    return TileLabels(
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


def read_labels(paths: Sequence[Path]) -> list[TileLabels]:
    """Read files of labels, one row a problem.

    Raises
    ------
    DatasetError
        The labels are missing, of several devices, or of another order of features.
    RecordError
        A line is not a label.
    """
    found = (row for path in paths for row in read_rows(path, TileLabels))
    rows = list({(row.matrix, row.seed): row for row in found}.values())
    one_device(row.device for row in rows)
    other = next((row.features for row in rows if row.features != FEATURES), None)
    if other is not None:
        raise DatasetError(f"expected features {', '.join(FEATURES)}, found {', '.join(other)}; measure labels again")
    return rows
