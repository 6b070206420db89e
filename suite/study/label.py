"""``spmark study label``: the labels that predictors of an implementation are trained on, measured on a device."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from spmark.datasets.cache import Cache
from spmark.datasets.load import LoadedMatrix, load_matrix
from spmark.datasets.origins import oldest_id
from spmark.datasets.sources.table import find_source
from spmark.datasets.sweep.model import MatrixSpec
from spmark.datasets.sweep.reading import packaged_lists, read_list
from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.enums import MEASURED_TYPES
from spmark.impls.core.errors import DatasetError, DeviceError, SpmarkError, SweepError
from spmark.impls.core.files import path_component
from spmark.impls.core.problem import DType
from spmark.studies.contracts import LabelJob, Outcome
from spmark.studies.table import find_contract
from spmark.suite.cli.console import tell
from spmark.suite.plan.papers import seconds

_LOADERS = 4
"""Processes that load matrices while others are measured: threads would hold up the launches of timed kernels."""
_AHEAD = 12


@dataclass(frozen=True)
class LabelRequest:
    """What the command line asks for."""

    method: str
    patterns: Sequence[str]
    """Patterns of matrices, or names of packaged lists; those of the method by default."""
    dtypes: Sequence[str]
    budget: str
    shard: str
    device: str
    out: Path
    as_json: bool


def measure_labels(request: LabelRequest) -> int:
    """Measure until everything has a row or the time is up; gives how many rows are left.

    Raises
    ------
    SweepError
        The method, a dtype, the budget or the shard is invalid, or no matrix fits the patterns.
    DeviceError
        The device is not a GPU.
    RecordError
        The rows cannot be written.
    """
    from spmark.impls.runtime.device import calibrated

    labels = find_contract("labels", request.method)
    ends = time.monotonic() + seconds(request.budget)
    dtypes, shard = _dtypes(request.dtypes), parsed_shard(request.shard)
    cache = Cache.default()
    patterns = labels.patterns and (request.patterns or labels.patterns)
    names = list(dict.fromkeys(matrices_of(patterns, cache)))
    if patterns and len(names) < shard[0]:
        raise SweepError(f"expected matrices of shard {request.shard} that fit {', '.join(patterns)}, found none")
    device = calibrated(gpu_named(request.device, "labels"))
    job = LabelJob(
        device=device,
        folder=request.out / path_component(device.name),
        shard=shard,
        ends=ends,
        names=names,
        load=partial(loaded, cache=cache),
        dtypes=dtypes,
    )
    outcome: Outcome = labels.measure(job)
    tell(outcome, request.as_json)
    return outcome.left


def matrices_of(patterns: Sequence[str], cache: Cache) -> Iterator[str]:
    """Give ``source/name`` of the matrices that fit one of the patterns, or that a list of sweeps' matrices names.

    Matrices of a list go by their oldest ids, under which the labels that ship know them.

    Raises
    ------
    DatasetError
        A source is unknown.
    """
    for pattern in patterns:
        if pattern in (lists := packaged_lists()):
            yield from map(oldest_id, read_list(lists[pattern]))
            continue
        source, _, name = pattern.partition("/")
        names = find_source(source).names(cache)
        fitting = [one for one in names if fnmatchcase(one, name or "*")]
        yield from (f"{source}/{one}" for one in (fitting or ([name] if name and "*" not in name else [])))


def loaded(names: Sequence[str], cache: Cache) -> Iterator[tuple[str, LoadedMatrix | str]]:
    """Give matrices in order, loaded ahead by other processes; a reason stands for a matrix that cannot be loaded.

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
                    matrix_or_reason = future.result()
                except BrokenProcessPool as error:
                    raise DatasetError(
                        f"{name}: a process that loads matrices was ended from outside, for want of memory perhaps; "
                        "what was measured is kept: run the command again"
                    ) from error
                yield name, matrix_or_reason
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _load(name: str, cache: Cache) -> LoadedMatrix | str:
    source, _, matrix = name.partition("/")
    try:
        return load_matrix(MatrixSpec(source=source, name=matrix), cache, 0)
    except SpmarkError as error:
        return str(error)


def _dtypes(names: Sequence[str]) -> list[DType]:
    known = [dtype.value for dtype in MEASURED_TYPES]
    for name in names:
        if name not in known:
            raise SweepError(f"--dtype: expected one of {', '.join(known)}, found {name!r}")
    return [DType(name) for name in dict.fromkeys(names or known)]


def parsed_shard(shard: str) -> tuple[int, int]:
    """Read ``N/M``; raises `SweepError` for any other text."""
    match = re.fullmatch(r"(\d+)/(\d+)", shard)
    number, total = (int(part) for part in match.groups()) if match else (0, 0)
    if not 1 <= number <= total:
        raise SweepError(f"--shard: expected N/M with N from 1 to M, such as 1/4, found {shard!r}")
    return number, total


def gpu_named(name: str, what: str) -> DeviceSpec:
    """Find a GPU to measure ``what`` on.

    Raises
    ------
    DeviceError
        The device is missing or is not a GPU.
    """
    from spmark.impls.runtime.device import find

    spec = find(name)
    if spec.kind is not DeviceKind.CUDA:
        raise DeviceError(f"expected a GPU to measure {what} on, found {spec.name}; times of {spec.kind} say nothing")
    return spec
