"""Result files of airspeed velocity as records: times of every case, with build costs where benchmarks follow them.

A result file keeps no reason, no facts of the problem and no interleaved baseline: a failure says so, shares of a
roofline are unknown, and speed-ups are over the baseline's own row.
"""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from math import isnan, prod
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import RecordError
from spmark.impls.core.guard import reading
from spmark.impls.core.plainjson import parse_model
from spmark.impls.core.problem import DType, Op
from spmark.impls.core.record import CaseSpec, MatrixRef, Measurement, Orientation, Status

MACHINE = "machine.json"
_TIMES = re.compile(r"(?P<set>\w+)(?P<op>Spmm|Sddmm)\.track_time$")
_VERSION = re.compile(r"protocol-(\d+)$")
_COST_WIDTH = 128
_COST_DTYPES = {"": "float32", "Half": "float16"}
"""Width and dtypes at which build costs are followed; the keys stand before `Plans` in a benchmark's name."""
_Costs = dict[tuple[str, str, str], dict[str, Any]]
_MOST_COMBINATIONS = 1_000_000
_LONGEST_VALUE = 500
_NO_REASON = "airspeed velocity keeps no reason: see the log of its run"


class _ResultFile(BaseModel):
    """The fields that are read of a file of layout 2."""

    model_config = ConfigDict(frozen=True)

    commit_hash: str
    params: dict[str, str | None]
    result_columns: list[str]
    results: dict[str, list[Any]]


@dataclass(frozen=True)
class _Series:
    """A benchmark: one value, and perhaps samples, for each combination of parameters."""

    params: list[tuple[Any, ...]]
    values: list[float | None]
    samples: list[list[float] | None]
    version: str
    started_at: datetime


def is_result_file(path: Path) -> bool:
    """Say whether a file lies where airspeed velocity keeps the results of a machine."""
    return path.suffix == ".json" and path.name != MACHINE and (path.parent / MACHINE).is_file()


def read_result_file(path: Path) -> list[Measurement]:
    """Give a record for every case that a result file has a time or a failure of; n/a gives none.

    Raises
    ------
    RecordError
        The file is not a result file, or its parameters are not those of our benchmarks.
    """
    with reading(path, "a result file of airspeed velocity with our benchmarks", RecordError):
        file = parse_model(_ResultFile, path.read_bytes())
        records: list[Measurement] = []
        for name, row in file.results.items():
            match = _TIMES.search(name)
            if match:
                times = _series(file, row)
                costs = _costs(file, name[: match.start()] + match["set"], match["op"].lower())
                records += _measurements(file, match["op"].lower(), times, costs)
        return records


def _series(file: _ResultFile, row: list[Any]) -> _Series:
    cells = dict(zip(file.result_columns, row, strict=False))
    combinations = prod(len(values) for values in cells["params"])
    if combinations > _MOST_COMBINATIONS:
        raise ValueError(f"expected at most {_MOST_COMBINATIONS:,} combinations of parameters, found {combinations:,}")
    params = list(product(*([_value(text) for text in texts] for texts in cells["params"])))
    nothing: list[Any] = [None] * len(params)
    return _Series(
        params=params,
        values=cells["result"] or nothing,
        samples=cells.get("samples") or nothing,
        version=cells["version"],
        started_at=datetime.fromtimestamp(cells["started_at"] / 1000, UTC),
    )


def _value(text: str) -> Any:
    """Give the value of a repr. Long ones are refused: Python's parser takes memory for each level of nesting."""
    if len(text) > _LONGEST_VALUE:
        raise ValueError(f"expected a parameter of at most {_LONGEST_VALUE} letters, found {len(text):,}")
    return literal_eval(text)


def _costs(file: _ResultFile, owner: str, op: str) -> _Costs:
    """Give stored elements, bytes and phases of (implementation, matrix, dtype)."""
    costs: _Costs = {}
    for half, dtype in _COST_DTYPES.items():
        for field, name in (("stored", "track_stored"), ("device_bytes", "track_device_bytes")):
            for (of, implementation, matrix), value in _values(file, f"{owner}{half}Plans.{name}"):
                if of == op:
                    costs.setdefault((implementation, matrix, dtype), {})[field] = int(value)
        for (of, implementation, matrix, phase), value in _values(file, f"{owner}{half}Phases.track_phase"):
            if of == op:
                costs.setdefault((implementation, matrix, dtype), {}).setdefault("phases_s", {})[phase] = value
    return costs


def _values(file: _ResultFile, name: str) -> Iterator[tuple[tuple[Any, ...], float]]:
    """Walk over the measured values; n/a and failures are passed over."""
    if name in file.results:
        series = _series(file, file.results[name])
        for params, value in zip(series.params, series.values, strict=True):
            if value is not None and not isnan(value):
                yield params, value


def _measurements(file: _ResultFile, op: str, times: _Series, costs: _Costs) -> Iterator[Measurement]:
    for (implementation, matrix_id, width, dtype), value, samples in zip(
        times.params, times.values, times.samples, strict=True
    ):
        if value is not None and isnan(value):
            continue
        source, _, rest = matrix_id.partition("/")
        matrix, _, orientation = rest.partition("@")
        known = costs.get((implementation, matrix_id, dtype), {}) if width == _COST_WIDTH else {}
        gpu, machine = file.params.get("gpu") or "", file.params.get("machine") or ""
        version = _VERSION.search(times.version)
        seconds = samples or ([value] if value is not None else [])
        ok = value is not None
        yield Measurement(
            spec=CaseSpec(
                op=Op(op),
                matrix=MatrixRef(source=source, name=matrix, orientation=Orientation(orientation or "A")),
                width=width,
                dtype=DType(dtype),
                implementation=implementation,
                label=implementation,
                seed=0,
                implementation_version=f"commit-{file.commit_hash[:16]}",
                protocol_version=int(version[1]) if version else 0,
            ),
            device=gpu or machine,
            device_kind=DeviceKind.CUDA if gpu else DeviceKind.CPU,
            status=Status.OK if ok else Status.RUN_ERROR,
            reason="" if ok else _NO_REASON,
            samples_us=[second * 1e6 for second in seconds] if ok else [],
            started_at=times.started_at,
            **(known if ok else {}),
        )
