"""``spmark label``: times of formats on a device, matrix by matrix, that predictors are trained on."""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from fnmatch import fnmatchcase
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Self

from rich.markup import escape

from spmark.datasets.cache import Cache
from spmark.datasets.load import LoadedMatrix, load_matrix
from spmark.datasets.sources.table import find_source
from spmark.datasets.sweep import MatrixSpec
from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.digest import implementation_version
from spmark.impls.core.errors import DatasetError, DeviceError, RecordError, SpmarkError, SweepError
from spmark.impls.core.names import path_component
from spmark.impls.core.problem import DType
from spmark.impls.core.recordfile import RecordFile, read_rows
from spmark.suite.commands.console import answer, console, say
from spmark.suite.commands.train import check_method
from spmark.suite.reproduce import seconds

if TYPE_CHECKING:
    from spmark.impls.liteform.study.labels import LabelRow
    from spmark.impls.liteform.study.tuning import ScheduleRow

_log = logging.getLogger(__name__)
SOURCES = ("mirror", "seeded")
"""Whose matrices are labelled by default."""
_LIMIT_S = 12.0
"""Seconds after which the climb on one matrix is cut short."""
_LOADERS = 4
"""Processes that load matrices while others are measured: threads would hold up the launches of what is timed."""
_AHEAD = 12
_EXHAUSTIVE_NNZ = 3_000_000
"""Non-zeros up to which every config of a matrix may be tried."""


@dataclass(frozen=True)
class LabelRequest:
    """What the command line asks for."""

    method: str
    patterns: Sequence[str]
    dtypes: Sequence[str]
    exhaustive: int
    budget: str
    shard: str
    schedules: bool
    device: str
    out: Path
    as_json: bool


def measure_labels(request: LabelRequest) -> int:
    """Measure until all matrices have a label or the time is up; gives how many are left.

    Raises
    ------
    SweepError
        The method, a dtype, the budget or the shard is not what it must be, or no matrix fits the patterns.
    DeviceError
        The device is no GPU.
    RecordError
        The labels cannot be written.
    """
    check_method(request.method)
    ends = time.monotonic() + seconds(request.budget)
    wanted = _dtypes(request.dtypes)
    cache, screen = Cache.default(), console(request.as_json)
    names = list(dict.fromkeys(matrices_of(request.patterns, cache)))
    mine = list(_shard(names, request.shard))
    if not mine:
        raise SweepError(f"expected matrices that fit {', '.join(request.patterns) or 'the sources'}, found none")
    device = gpu_named(request.device)
    number, total = parsed_shard(request.shard)
    shard = f"{number:02d}-of-{total:02d}"
    # No .jsonl but for labels, which is what a folder of labels consists of.
    folder, job = request.out / path_component(device.name), _Job(mine, wanted, device, cache, ends)
    with _Skips(folder / f"skipped-{shard}.ndjson", device.name) as skips:
        if request.schedules:
            file = folder / f"schedules-{shard}.ndjson"
            made, left = _schedules(file, job, skips)
        else:
            file = folder / f"shard-{shard}.jsonl"
            made, left = _labels(file, job, skips, spread_out(names, request.exhaustive))
    if request.as_json:
        answer({"file": file, "made": made, "left": left, "skipped": len(skips.known), "skips": skips.path})
    else:
        why = f", {len(skips.known)} skipped, see {skips.path}" if skips.known else ""
        say(screen, escape(f"{file}: {made} made, {left} left{why}"))
    return left


def matrices_of(patterns: Sequence[str], cache: Cache) -> Iterator[str]:
    """Give ``source/name`` of what is labelled: all of `SOURCES`, or what fits one of the patterns.

    Raises
    ------
    DatasetError
        A source is unknown.
    """
    for pattern in patterns or [f"{source}/*" for source in SOURCES]:
        source, _, name = pattern.partition("/")
        held = find_source(source).names(cache)
        fitting = [one for one in held if fnmatchcase(one, name or "*")]
        yield from (f"{source}/{one}" for one in (fitting or ([name] if name and "*" not in name else [])))


def spread_out(names: Sequence[str], count: int) -> set[str]:
    """Choose so many of the names, evenly over the list: some of every source and kind."""
    step = max(1, len(names) // count) if count else 1
    return set(names[::step][:count])


def loaded(names: Sequence[str], cache: Cache) -> Iterator[tuple[str, LoadedMatrix | str]]:
    """Give matrices in order, loaded ahead by other processes; where one cannot be, the reason stands for it.

    Raises
    ------
    DatasetError
        One of these processes was killed.
    """
    waiting: deque[tuple[str, Future[LoadedMatrix | str]]] = deque()
    todo = iter(names)
    with ProcessPoolExecutor(_LOADERS, get_context("spawn")) as pool:
        try:
            while True:
                while len(waiting) < _AHEAD and (name := next(todo, None)) is not None:
                    waiting.append((name, pool.submit(_load, name, cache)))
                if not waiting:
                    return
                name, future = waiting.popleft()
                try:
                    found = future.result()
                except BrokenProcessPool as error:
                    raise DatasetError(
                        f"{name}: a process that loads matrices was ended from outside, for want of memory perhaps; "
                        "what was measured is kept: run the command again"
                    ) from error
                yield name, found
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _load(name: str, cache: Cache) -> LoadedMatrix | str:
    source, _, matrix = name.partition("/")
    try:
        return load_matrix(MatrixSpec(source=source, name=matrix), cache, 0)
    except SpmarkError as error:
        return str(error)


@dataclass(frozen=True)
class _Job:
    """What a shard measures, on what and until when."""

    names: Sequence[str]
    dtypes: Sequence[DType]
    device: DeviceSpec
    cache: Cache
    ends: float


class _Skips:
    """What this version has found that it cannot measure: kept beside the shard, and not tried again."""

    def __init__(self, path: Path, device: str) -> None:
        from spmark.impls.liteform.study.shards import skipped_before

        self.path, self._device, self.version = path, device, implementation_version("liteform")
        self.known = skipped_before(path, device, self.version)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    _file: RecordFile | None = None

    def add(self, matrix: str, dtype: DType, reason: str, width: int = 0) -> None:
        """Keep one more, with the reason."""
        from spmark.impls.liteform.study.shards import Skipped

        self._file = self._file or RecordFile(self.path)
        row = Skipped(
            matrix=matrix, device=self._device, dtype=dtype, width=width, reason=reason,
            implementation_version=self.version,
        )  # fmt: skip
        self._file.append(row)
        self.known.add((matrix, dtype, width))


def _labels(file: Path, job: _Job, skips: _Skips, exhaustive: set[str]) -> tuple[int, int]:
    from spmark.impls.liteform.gpu import GpuTimer, compile_schedules, start_width
    from spmark.impls.liteform.schedule import table_for
    from spmark.impls.liteform.study.labels import WIDTHS, About, measure
    from spmark.impls.liteform.study.shards import label_all, measured_before

    device = job.device
    compile_schedules(device, job.dtypes, WIDTHS, table_for(device.name))
    before = measured_before(sorted(file.parent.glob("shard-*.jsonl")), device.name, skips.version)
    before |= {(name, dtype.value) for name, dtype, width in skips.known if not width}
    missing = [name for name in job.names for dtype in job.dtypes if (name, dtype.value) not in before]
    fresh, known = list(dict.fromkeys(missing)), len(skips.known)

    def make(name: str, matrix: LoadedMatrix, dtype: DType) -> LabelRow:
        about = About(name, matrix.kind.value, device.name, skips.version)
        every = name in exhaustive and matrix.csr.nnz <= _EXHAUSTIVE_NNZ
        timer = GpuTimer(matrix.csr, device, dtype)
        start = start_width(matrix.csr, device)
        return measure(matrix.csr, timer, about, dtype=dtype, exhaustive=every, start_width=start, limit_s=_LIMIT_S)

    made = label_all(file, loaded(fresh, job.cache), job.dtypes, make, job.ends, before, skips.add)
    return made, len(missing) - made - (len(skips.known) - known)


def _schedules(file: Path, job: _Job, skips: _Skips) -> tuple[int, int]:
    """Time schedules on matrices, and write what they say with the table that follows from it."""
    from spmark.impls.liteform.gpu import compile_schedules
    from spmark.impls.liteform.study.labels import WIDTHS
    from spmark.impls.liteform.study.tuning import ScheduleRow, make_table

    compile_schedules(job.device, job.dtypes, WIDTHS, None)
    shards = [row for path in sorted(file.parent.glob("schedules-*.ndjson")) for row in read_rows(path, ScheduleRow)]
    before = {(row.matrix, row.dtype, row.width) for row in shards} | skips.known
    every = [(name, dtype, width) for name in job.names for dtype in job.dtypes for width in WIDTHS]
    missing = [one for one in every if one not in before]
    made = left = 0
    warm = False
    with RecordFile(file) as rows:
        for name, matrix in loaded(list(dict.fromkeys(name for name, *_ in missing)), job.cache):
            for _, dtype, width in (one for one in missing if one[0] == name):
                if isinstance(matrix, str):
                    skips.add(name, dtype, matrix, width)
                elif time.monotonic() >= job.ends:
                    left += 1
                else:
                    if not warm:  # what a process measures first is slow, whatever the reason: once for nothing
                        _schedule_row(job.device, name, matrix, dtype, width)
                        warm = True
                    found = _schedule_row(job.device, name, matrix, dtype, width)
                    if isinstance(found, str):
                        skips.add(name, dtype, found, width)
                    else:
                        rows.append(found)
                        made += 1
    every_row = [row for path in sorted(file.parent.glob("schedules-*.ndjson")) for row in read_rows(path, ScheduleRow)]
    table = make_table(every_row, "spmark label liteform --schedules")
    path = file.parent / "schedules.json"
    try:
        path.write_text(table.model_dump_json(exclude_defaults=True) + "\n", encoding="utf-8")
    except OSError as error:
        raise RecordError(f"{path}: the table cannot be written: {error.strerror}; name another folder") from error
    return made, left


def _schedule_row(device: DeviceSpec, name: str, matrix: LoadedMatrix, dtype: DType, width: int) -> ScheduleRow | str:
    from spmark.impls.liteform.gpu import ScheduleTimer

    try:
        return ScheduleTimer(matrix.csr, device, dtype, width).row(name)
    except SpmarkError as error:
        _log.warning("%s in %s at J = %d: %s", name, dtype, width, error)
        return str(error)


def gpu_named(name: str) -> DeviceSpec:
    """Find a GPU to measure on; raises `DeviceError` where the device is none."""
    from spmark.impls.runtime.device import calibrated, find

    found = find(name)
    if found.kind is not DeviceKind.CUDA:
        raise DeviceError(f"expected a GPU to measure labels on, found {found.name}; times of {found.kind} say nothing")
    return calibrated(found)


def _dtypes(names: Sequence[str]) -> list[DType]:
    known = [dtype.value for dtype in DType]
    for name in names:
        if name not in known:
            raise SweepError(f"--dtype: expected one of {', '.join(known)}, found {name!r}")
    return [DType(name) for name in dict.fromkeys(names or known)]


def parsed_shard(shard: str) -> tuple[int, int]:
    """Read ``N/M``; raises `SweepError` where it is none."""
    found = re.fullmatch(r"(\d+)/(\d+)", shard)
    number, total = (int(part) for part in found.groups()) if found else (0, 0)
    if not 1 <= number <= total:
        raise SweepError(f"--shard: expected N/M with N from 1 to M, such as 1/4, found {shard!r}")
    return number, total


def _shard(names: Sequence[str], shard: str) -> Sequence[str]:
    number, total = parsed_shard(shard)
    return names[number - 1 :: total]
