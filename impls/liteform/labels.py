"""Labels from a device: each matrix's fastest number of partitions and bucket width, and the fixed formats' times.

After the label search of LiteForm's public code (Peng et al., HPDC 2025): a hill climb over powers of two from one
partition, in which a neighbour is followed unless it is slower than where it was seen from. What differs: a config is
built once for all widths J, so that what one J's climb asks for is known to the others, both fixed formats are timed,
and the climb may begin at the width of least cost instead of at narrow buckets, which are slow.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from math import inf, log2
from pathlib import Path
from typing import Literal, Protocol, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict

from spmark.impls.core.errors import DatasetError, SpmarkError
from spmark.impls.core.problem import Csr, DType
from spmark.impls.core.recordfile import RecordFile, read_rows
from spmark.impls.liteform.climb import Point, climb, published_start
from spmark.impls.liteform.compose import Form
from spmark.impls.liteform.features import Features
from spmark.impls.liteform.labelled import Labels
from spmark.impls.liteform.loops import MAX_POWER

WIDTHS = (32, 64, 128, 256, 512)
"""J of the published labels."""
MAX_SAMPLES = 10
"""Most samples of a config."""
MAX_PARTITION_POWER = 7
_TIED = 0.03
"""Shares by which medians of a few samples differ without meaning it."""
_log = logging.getLogger(__name__)


Matrix = TypeVar("Matrix")


@dataclass(frozen=True)
class About:
    """What a label says of where it comes from."""

    matrix: str
    """``source/name``."""
    matrix_kind: str
    device: str
    implementation_version: str = ""


class Timer(Protocol):
    """Times formats of one matrix, at several widths J, on whatever there is."""

    def fixed(self, form: Form, width: int) -> list[float]:
        """Give samples of CSR or BSR at one J in microseconds; raises `SpmarkError` where it cannot be."""
        ...

    def prepare(self, configs: Sequence[tuple[int, int]]) -> None:
        """Do on the host what these configs, asked for next, have before they are timed; nothing may be left to do."""
        ...

    def cell(self, partitions: int, max_width: int) -> Mapping[int, list[float]]:
        """Build CELL once and give its samples by J in microseconds; raises `SpmarkError` where it cannot be."""
        ...


class Tried(BaseModel):
    """A config with its times."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    partitions: int
    max_width: int
    samples_us: dict[int, list[float]] = {}
    reason: str = ""


class LabelRow(BaseModel):
    """A line of a file of labels: one matrix in one dtype, at all widths."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    schema_version: Literal[1] = 1
    matrix: str
    """``source/name``."""
    matrix_hash: str
    matrix_kind: str
    device: str
    dtype: DType
    widths: tuple[int, ...]
    features: dict[str, float]
    fixed_us: dict[str, dict[int, list[float]]]
    """Samples by format and J; a format that could not be is missing."""
    refused: dict[str, str] = {}
    """Why a fixed format is missing."""
    tried: tuple[Tried, ...]
    exhaustive: bool
    """Whether every config was tried."""
    complete: bool
    """Whether the climb ended by itself, and not because its time was up."""
    spent_s: float
    implementation_version: str = ""


class _TimeIsUpError(Exception):
    """The climb has used its time."""


class _Book:
    """Times every config once, for all widths together."""

    def __init__(self, timer: Timer, ends: float) -> None:
        self._timer, self._ends = timer, ends
        self.tried: dict[Point, Tried] = {}

    def announce(self, points: Sequence[Point]) -> None:
        """Have the timer prepare what has not been tried yet."""
        fresh = [point for point in points if point not in self.tried]
        if fresh and time.monotonic() < self._ends:
            self._timer.prepare([(1 << point.partitions, 1 << point.width) for point in fresh])

    def time_us(self, point: Point, width: int) -> float:
        """Give the median of a config at one J; infinite where it failed."""
        if point not in self.tried:
            if self.tried and time.monotonic() >= self._ends:
                raise _TimeIsUpError
            config = 1 << point.partitions, 1 << point.width
            try:
                samples = {j: list(found)[:MAX_SAMPLES] for j, found in self._timer.cell(*config).items()}
                self.tried[point] = Tried(partitions=config[0], max_width=config[1], samples_us=samples)
            except (SpmarkError, MemoryError) as error:
                reason = str(error) or type(error).__name__
                self.tried[point] = Tried(partitions=config[0], max_width=config[1], reason=reason)
        found = self.tried[point].samples_us.get(width)
        return float(np.median(found)) if found else inf


def measure(
    matrix: Csr,
    timer: Timer,
    about: About,
    *,
    dtype: DType = DType.FLOAT32,
    widths: Sequence[int] = WIDTHS,
    exhaustive: bool = False,
    start_width: int = 0,
    limit_s: float = inf,
) -> LabelRow:
    """Time one matrix.

    Parameters
    ----------
    matrix : Csr
    timer : Timer
        Of this matrix and dtype.
    about : About
        Of the row.
    dtype : DType
    widths : sequence of int
        J.
    exhaustive : bool
        Try every config instead of climbing.
    start_width : int
        Widest bucket that the climb begins with; by default the public code's.
    limit_s : float
        No config is begun after so many seconds; the row then says that it is not complete.
    """
    started = time.monotonic()
    features = Features.of(matrix)
    fixed: dict[str, dict[int, list[float]]] = {}
    refused: dict[str, str] = {}
    for form in (Form.CSR, Form.BSR):
        try:
            fixed[form.value] = {width: list(timer.fixed(form, width))[:MAX_SAMPLES] for width in widths}
        except (SpmarkError, MemoryError) as error:
            refused[form.value] = str(error) or type(error).__name__
    # Wider buckets than the longest row needs would be the same format again.
    longest = min(MAX_POWER, max(features.max_length - 1, 0).bit_length())
    most = Point(min(MAX_PARTITION_POWER, matrix.num_cols.bit_length() - 1), longest)
    start = Point(0, start_width.bit_length() - 1) if start_width else published_start(features)
    start = Point(0, min(start.width, most.width))
    book = _Book(timer, started + limit_s)
    complete = True
    try:
        if exhaustive:
            for partitions in range(most.partitions + 1):
                points = [Point(partitions, width_power) for width_power in range(most.width + 1)]
                book.announce(points)
                for point in points:
                    book.time_us(point, widths[0])
        else:
            for width in widths:
                climb(start, most, partial(book.time_us, width=width), book.announce)
    except _TimeIsUpError:
        complete = False
    return LabelRow(
        matrix=about.matrix,
        matrix_kind=about.matrix_kind,
        device=about.device,
        implementation_version=about.implementation_version,
        matrix_hash=matrix.hash,
        dtype=dtype,
        widths=tuple(widths),
        features={name: float(value) for name, value in asdict(features).items()},
        fixed_us=fixed,
        refused=refused,
        tried=tuple(book.tried.values()),
        exhaustive=exhaustive,
        complete=complete,
        spent_s=time.monotonic() - started,
    )


def measured_before(path: Path) -> set[tuple[str, str]]:
    """Give (matrix, dtype) of every row in a file of labels; nothing where there is none yet."""
    return {(row.matrix, row.dtype.value) for row in read_rows(path, LabelRow)} if path.is_file() else set()


def label_all(  # noqa: PLR0917
    path: Path,
    matrices: Iterable[tuple[str, Matrix | str]],
    dtypes: Sequence[DType],
    make: Callable[[str, Matrix, DType], LabelRow],
    ends: float,
    count: int,
) -> tuple[int, int]:
    """Label what has no row yet, each row on disk before the next matrix begins.

    Parameters
    ----------
    path : Path
        File of labels, appended to.
    matrices : iterable of (name, matrix)
        Taken one after the other as long as there is time; a text instead of a matrix says why there is none.
    dtypes : sequence of DType
    make : callable
        Measures one; what it raises on purpose is passed over, so that one broken matrix does not end a shard.
    ends : float
        Of the monotonic clock: no matrix is begun after it.
    count : int
        Matrices.

    Returns
    -------
    made, left : int
        Rows written, and rows that are still missing.
    """
    have = measured_before(path)
    made = known = 0
    with RecordFile(path) as file:
        for name, matrix in matrices:
            known += sum((name, dtype.value) in have for dtype in dtypes)
            if isinstance(matrix, str):
                _log.warning("%s has no label: %s", name, matrix)
                continue
            for dtype in dtypes:
                if (name, dtype.value) in have or time.monotonic() >= ends:
                    continue
                try:
                    row = make(name, matrix, dtype)
                except SpmarkError as error:
                    _log.warning("%s in %s has no label: %s", name, dtype, error)
                    continue
                file.append(row)
                made += 1
            if time.monotonic() >= ends:
                break
    return made, count * len(dtypes) - made - known


def partition_regret(rows: Iterable[LabelRow], predict: Callable[[Features, int], int]) -> float:
    """Give what predicted numbers of partitions cost in time, each with its own best bucket width.

    Parameters
    ----------
    rows : iterable of LabelRow
    predict : callable
        Partitions for features and J; where that number was not tried, the nearest that was is taken.

    Returns
    -------
    float
        Geometric mean over all matrices and J of the time over that of the best number, minus 1; NaN without times.
    """
    logs = []
    for row in rows:
        sizes = {name: row.features[name] for name in (field.name for field in fields(Features))}
        for width in row.widths:
            best: dict[int, float] = {}
            for tried in row.tried:
                if tried.samples_us.get(width):
                    time_us = float(np.median(tried.samples_us[width]))
                    best[tried.partitions] = min(time_us, best.get(tried.partitions, inf))
            if best:
                wanted = predict(Features(**sizes), width)  # type: ignore[arg-type]
                taken = min(best, key=lambda partitions: abs(log2(partitions / wanted)))
                logs.append(log2(best[taken] / min(best.values())))
    return float(2 ** np.mean(logs) - 1) if logs else float("nan")


def read_measured(path: Path, both: bool = True) -> tuple[Labels, str]:
    """Read a file of labels as a table.

    Parameters
    ----------
    path : Path
    both : bool
        Compare CELL with the faster of CSR and BSR, as the paper says, or with CSR alone, as its public code does.

    Returns
    -------
    labels : Labels
        A row for each matrix, dtype and J at which CELL and CSR have times.
    gpu : str

    Raises
    ------
    DatasetError
        The file holds no labels, or those of several devices.
    RecordError
        A line is no label.
    """
    rows = list(read_rows(path, LabelRow))
    devices = sorted({row.device for row in rows})
    if len(devices) != 1:
        raise DatasetError(f"{path}: expected labels of one device, found {', '.join(devices) or 'none'}")
    found = [line for row in rows for width in row.widths if (line := _line(row, width, both)) is not None]
    if not found:
        raise DatasetError(f"{path}: expected labels with times, found none")
    names, numbers = zip(*found, strict=True)
    columns = np.array(numbers, np.float64).T
    return Labels(np.array(names), *columns), devices[0]


def _line(row: LabelRow, width: int, both: bool) -> tuple[str, tuple[float, ...]] | None:
    """Give the fields of `Labels` for one J, in their order; None where CELL or CSR has no time."""
    times = [(float(np.median(t.samples_us[width])), t) for t in row.tried if t.samples_us.get(width)]
    forms = (Form.CSR, Form.BSR) if both else (Form.CSR,)
    fixed = [float(np.median(row.fixed_us[f][width])) for f in forms if row.fixed_us.get(f.value, {}).get(width)]
    if not times or not row.fixed_us.get(Form.CSR.value):
        return None
    cell_us = min(times, key=lambda pair: pair[0])[0]
    # Of configs that noise cannot tell apart the simplest is meant to be learned.
    tied = [pair for pair in times if pair[0] <= (1 + _TIED) * cell_us]
    best = min(tied, key=lambda pair: (pair[1].partitions, pair[0]))[1]
    sizes = ("num_rows", "num_cols", "nnz", "avg_length", "min_length", "max_length", "std_length")
    features = tuple(row.features[name] for name in sizes)
    chosen = (width, best.partitions, best.max_width, cell_us, min(fixed), min(fixed) / cell_us, row.spent_s)
    return f"{row.matrix} {row.dtype}", (*features, *chosen)
