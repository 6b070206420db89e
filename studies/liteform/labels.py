"""Labels from a device: each matrix's fastest number of partitions and bucket width, and the fixed formats' times.

After the label search of LiteForm's public code (Peng et al., HPDC 2025): a hill climb over powers of two from one
partition, in which a neighbour is followed unless it is slower than the config before it. Three things differ. A config
is built once for all widths J, so that its times are known to the climb of every J. All fixed formats are timed. The
climb begins at the width of least cost instead of at narrow buckets, which are slow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field

from spmark.impls.core.errors import SpmarkError
from spmark.impls.core.problem import Csr, DType
from spmark.impls.core.untrusted import Frozen
from spmark.impls.liteform.compose import StoredAs
from spmark.impls.liteform.features import Features
from spmark.impls.liteform.loops import MAX_POWER
from spmark.records.rowfile import read_rows
from spmark.studies.rows import Row, one_device, reason_of

if TYPE_CHECKING:
    from spmark.studies.liteform.gpu import GpuTimer

WIDTHS = (32, 64, 128, 256, 512)
"""J of the published labels."""
FIXED = (StoredAs.CSR, StoredAs.BSR)
"""Formats that CELL is compared with; rows of before may have times of further ones, which do not count."""
MAX_SAMPLES = 10
"""Most samples of a config."""
MAX_PARTITION_POWER = 7


Key = tuple[str, DType]
"""A matrix and a dtype."""
Samples = dict[int, list[Annotated[float, Field(gt=0, allow_inf_nan=False)]]]
"""Microseconds by J."""


class TriedConfig(Frozen):
    """A config with its times."""

    partitions: int
    max_width: int
    samples_us: Samples = Field(default_factory=dict)
    reason: str = ""


class MatrixLabels(Row):
    """A line of a file of labels: one matrix in one dtype, at all widths."""

    matrix: str
    """``source/name``."""
    matrix_hash: str
    matrix_kind: str
    device: str
    dtype: DType
    widths: tuple[int, ...]
    features: Features
    fixed_us: dict[str, Samples]
    """Samples by format and J; a format that could not be timed is missing."""
    refused: dict[str, str] = Field(default_factory=dict)
    """Why a fixed format is missing."""
    tried: tuple[TriedConfig, ...]
    exhaustive: bool = False
    """Whether every config was tried, as in some rows of before."""
    complete: bool
    """Whether the climb ended by itself, and not because its time was up."""
    spent_s: float
    implementation_version: str = ""


class Point(NamedTuple):
    """Binary logarithms of a config."""

    partitions: int
    width: int


def neighbours(point: Point, most: Point) -> list[Point]:
    """Give the up to eight points one step away in either direction or both."""
    steps = product((-1, 0, 1), repeat=2)
    points = [Point(point.partitions + p, point.width + w) for p, w in steps if p or w]
    return [n for n in points if 0 <= n.partitions <= most.partitions and 0 <= n.width <= most.width]


def climb(start: Point, most: Point, time_us: Callable[[Point], float]) -> dict[Point, float]:
    """Walk over the configs depth first, on to each neighbour that is not slower than the config before it.

    Parameters
    ----------
    start, most : Point
        Where to begin, and the largest powers.
    time_us : callable
        Time of a config, infinite where it fails; asked once for each.

    Returns
    -------
    dict
        Time of every config that was asked for.
    """
    seen = {start: time_us(start)}
    stack = [start]
    while stack:
        here = stack.pop()
        for there in (one for one in neighbours(here, most) if one not in seen):
            seen[there] = time_us(there)
            if seen[there] <= seen[here] and seen[there] < inf:
                stack.append(there)
    return seen


def measure(
    matrix: Csr,
    timer: GpuTimer,
    about: Mapping[str, Any],
    *,
    dtype: DType,
    start_width: int,
    widths: Sequence[int] = WIDTHS,
    limit_s: float = inf,
) -> MatrixLabels:
    """Time one matrix.

    Parameters
    ----------
    matrix : Csr
    timer : GpuTimer
        Timer of this matrix and dtype.
    about : mapping of str to str
        The row's ``matrix``, ``matrix_kind``, ``device`` and ``implementation_version``.
    dtype : DType
    widths : sequence of int
        J.
    start_width : int
        Widest bucket that the climb begins with, a power of two.
    limit_s : float
        No config is begun after so many seconds; the row then says that it is not complete.
    """
    started = time.monotonic()
    features = Features.of(matrix)
    fixed: dict[str, dict[int, list[float]]] = {}
    refused: dict[str, str] = {}
    for form in FIXED:
        try:
            fixed[form.value] = {width: list(timer.fixed(form, width))[:MAX_SAMPLES] for width in widths}
        except (SpmarkError, MemoryError) as error:
            refused[form.value] = reason_of(error)
    # Wider buckets than the longest row needs would be the same format again.
    longest = min(MAX_POWER, max(features.max_length - 1, 0).bit_length())
    most = Point(min(MAX_PARTITION_POWER, matrix.num_cols.bit_length() - 1), longest)
    start = Point(0, min(start_width.bit_length() - 1, longest))
    ends, complete, tried = started + limit_s, True, dict[Point, TriedConfig]()

    def time_us(point: Point, width: int) -> float:
        """Give the median at one width J of a config, which is timed once for all; infinite without a time."""
        nonlocal complete
        if point not in tried:
            if tried and time.monotonic() >= ends:
                complete = False
                return inf
            found: dict[str, Any] = {"partitions": 1 << point.partitions, "max_width": 1 << point.width}
            try:
                samples = timer.cell(**found)
                found["samples_us"] = {j: list(times)[:MAX_SAMPLES] for j, times in samples.items()}
            except (SpmarkError, MemoryError) as error:
                found["reason"] = reason_of(error)
            tried[point] = TriedConfig(**found)
        times = tried[point].samples_us.get(width)
        return float(np.median(times)) if times else inf

    for width in widths:
        climb(start, most, partial(time_us, width=width))
    return MatrixLabels(
        **about,
        matrix_hash=matrix.hash,
        dtype=dtype,
        widths=tuple(widths),
        features=features,
        fixed_us=fixed,
        refused=refused,
        tried=tuple(tried.values()),
        complete=complete,
        spent_s=time.monotonic() - started,
    )


def read_labels(paths: Sequence[Path]) -> list[MatrixLabels]:
    """Read files of labels of one device, every matrix and dtype once however the files were sharded.

    Of several rows of one matrix and dtype, the last one is taken.

    Raises
    ------
    DatasetError
        The files hold no labels, or those of several devices.
    RecordError
        A line is not a label.
    """
    found = (row for path in paths for row in read_rows(path, MatrixLabels))
    rows = list({(row.device, row.matrix, row.dtype): row for row in found}.values())
    one_device((row.device for row in rows), f"{', '.join(map(str, paths))}: expected labels")
    return rows
