"""``spmark label``: times of formats on a device, matrix by matrix, that predictors are trained on."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from spmark.datasets.cache import Cache
from spmark.datasets.load import LoadedMatrix, load_matrix
from spmark.datasets.sources.table import find_source
from spmark.datasets.sweep import MatrixSpec
from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.digest import implementation_version
from spmark.impls.core.errors import DeviceError, RecordError, SpmarkError, SweepError
from spmark.impls.core.problem import DType
from spmark.suite.commands.console import answer, console, say
from spmark.suite.commands.train import METHODS
from spmark.suite.reproduce import seconds

if TYPE_CHECKING:
    from spmark.impls.liteform.labels import LabelRow

SOURCES = ("mirror", "seeded")
"""Whose matrices are labelled by default."""
_SCHEDULED = 12
_LIMIT_S = 60.0
"""Seconds after which the climb on one matrix is cut short."""


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
    if request.method not in METHODS:
        raise SweepError(f"expected a method with predictors out of {', '.join(METHODS)}, found {request.method!r}")
    ends = time.monotonic() + seconds(request.budget)
    wanted = _dtypes(request.dtypes)
    cache, screen = Cache.default(), console(request.as_json)
    names = list(matrices_of(request.patterns, cache))
    mine = list(_shard(names, request.shard))
    if not mine:
        raise SweepError(f"expected matrices that fit {', '.join(request.patterns) or 'the sources'}, found none")
    device = _gpu(request.device)
    if request.schedules:
        file = _schedules(mine, wanted, device, cache, request.out)
        say(screen, escape(str(file)))
        return 0
    from spmark.impls.liteform.labels import label_all

    number, total = _parsed(request.shard)
    file = request.out / device.name / f"shard-{number:02d}-of-{total:02d}.jsonl"
    maker = _Maker(device, cache, spread_out(names, request.exhaustive))
    made, left = label_all(file, [(name, dtype) for name in mine for dtype in wanted], maker.row, ends)
    if request.as_json:
        answer({"file": file, "made": made, "left": left})
    else:
        say(screen, escape(f"{file}: {made} labels made, {left} left"))
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


class _Maker:
    """Labels one matrix after the other; keeps the last one, which has two dtypes."""

    def __init__(self, device: DeviceSpec, cache: Cache, exhaustive: set[str]) -> None:
        self._device, self._cache, self._exhaustive = device, cache, exhaustive
        self._held: tuple[str, LoadedMatrix] | None = None

    def row(self, name: str, dtype: DType) -> LabelRow:
        """Measure one matrix in one dtype."""
        from spmark.impls.liteform.gpu import GpuTimer
        from spmark.impls.liteform.labels import About, measure

        if self._held is None or self._held[0] != name:
            self._held = name, _loaded(name, self._cache)
        loaded = self._held[1]
        about = About(name, loaded.kind.value, self._device.name, implementation_version("liteform"))
        timer = GpuTimer(loaded.csr, self._device, dtype)
        exhaustive = name in self._exhaustive
        return measure(loaded.csr, timer, about, dtype=dtype, exhaustive=exhaustive, limit_s=_LIMIT_S)


def _loaded(name: str, cache: Cache) -> LoadedMatrix:
    source, _, matrix = name.partition("/")
    return load_matrix(MatrixSpec(source=source, name=matrix), cache, 0)


def _schedules(names: Sequence[str], dtypes: Sequence[DType], device: DeviceSpec, cache: Cache, out: Path) -> Path:
    """Measure the table of schedules on some matrices and write it."""
    from spmark.impls.liteform.gpu import schedule_entries
    from spmark.impls.liteform.schedule import Table

    matrices = []
    for name in names[:_SCHEDULED]:
        try:
            matrices.append(_loaded(name, cache).csr)
        except SpmarkError:
            continue
    entries = schedule_entries(matrices, device, dtypes)
    table = Table(device=device.name, entries=tuple(entries), made_with="spmark label liteform --schedules")
    path = out / device.name / "schedules.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(table.model_dump_json(indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise RecordError(f"{path}: the table cannot be written: {error.strerror}; name another folder") from error
    return path


def _gpu(name: str) -> DeviceSpec:
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


def _parsed(shard: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)/(\d+)", shard)
    number, total = (int(part) for part in found.groups()) if found else (0, 0)
    if not 1 <= number <= total:
        raise SweepError(f"--shard: expected N/M with N from 1 to M, such as 1/4, found {shard!r}")
    return number, total


def _shard(names: Sequence[str], shard: str) -> Sequence[str]:
    number, total = _parsed(shard)
    return names[number - 1 :: total]
