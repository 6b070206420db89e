"""Records of one or more runs as one data frame: facts only, one row per case, with the rates of their device.

Files are read as the suite wrote them (`spmark.records.rowfile`); lines that a crash cut off are passed over.
"""

from __future__ import annotations

import logging
import operator
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import RecordError
from spmark.impls.core.files import path_component
from spmark.records.plausible import read_measurements
from spmark.records.rowfile import SUFFIXES, read_rows, row_files
from spmark.records.schema import SPARSE_PACKAGE, CaseSpec, Environment, EnvironmentRow, Flush, Measurement
from spmark.records.unpack import beginning

_log = logging.getLogger(__name__)
Paths = str | Path | Iterable[str | Path]
"""One file or folder, or several."""
Run = Callable[[Iterable[Callable[[], Any]]], Iterator[Any]]
"""Runs jobs and gives their results in order."""
in_turn: Run = partial(map, operator.call)
TRANSFERS = "transfers."
"""How files of facts about moved models begin, which stand beside records (`spmark.report.transfers`)."""
_SIDE_FILES = ("environments", "candidates", "runs.", TRANSFERS)
_BEGINNING = 1 << 20
"""Bytes of a file in which a line of a record begins, even where a crash has cut off the first lines."""
_SIDE_FOLDERS = frozenset({"labels", "samples"})
"""Folders beside records whose rows cost models learn from."""

_FACTS = ("num_rows", "num_cols", "nnz", "longest_row", "relations", "flops", "compulsory_bytes")
_SAMPLES = ("samples_us", "warm_samples_us", "graph_samples_us")
_COPIED = [name for name in Measurement.model_fields if name not in ("schema_version", "spec", "problem", "baseline")]
_OF_SPEC = [name for name in CaseSpec.model_fields if name not in ("scaled", "baseline", "time_limit_s", "config")]
COLUMNS = (
    "sweep", *_OF_SPEC, "requested", *_COPIED, "baseline_implementation", "baseline_config", "baseline_refused",
    "baseline_samples_us", "beside_us", *_FACTS, "facts", "library", "copy_bytes_per_s", "flops_per_s", "other_ids",
    "pattern",
)  # fmt: skip
"""Columns of a loaded frame: the fields of a record and of its case, and what is derived from other fields.

``matrix`` is the id (``source/name``, with the orientation; the columns of X where RGMS has others than of Y; where
two patterns share an id, the start of the pattern's hash); where records name a matrix by a mirror and others by its
origin, all have the origin's name, in ``case_id``, too; ``op`` is ``sddmm-scaled`` for scaled SDDMM; samples are
(n,) float64 arrays in the order taken;
``baseline_refused`` is a tuple of `RefusedConfig`; ``beside_us`` is the median of the baseline's samples; ``facts`` is
the `Environment`, or None where its row is missing, and the two rates are then NaN; ``library`` is the version of a
GPU's sparse library, empty where it is not known; ``other_ids`` is a tuple of ids of the same case under other names of
its matrix; ``pattern`` is ``matrix_hash``, or, where that is empty, the pattern that another run of the case has seen,
and has the columns of X where ``matrix`` has them.
"""
_CASE = ["device", "case_id", "pattern"]
"""Columns that tell cases apart: files of one name may hold several patterns."""
_PROBLEM = ["device", "op", "dtype", "matrix", "width", "seed"]


@contextmanager
def python_texts() -> Iterator[None]:
    """Let pandas keep the texts of new frames as Python's own; also a decorator.

    With PyArrow installed, pandas keeps texts as PyArrow does. A report walks over texts value by value, which takes
    longer there, and joins with empty frames fail (pandas 3.1, PyArrow 26).
    """
    with pd.option_context("mode.string_storage", "python"):
        yield


@python_texts()
def load_records(paths: Paths, *, by_sweep: bool = False, run: Run = in_turn) -> pd.DataFrame:
    """Read records into a frame of `COLUMNS`.

    Parameters
    ----------
    paths : str, Path or several of these
        Record files (``.jsonl``, also as ``.bz2``, ``.gz`` or ``.xz``), or folders that are searched for them at any
        depth; environments are read from the folder of each record file.
    by_sweep : bool
        Whether a case that several sweeps have recorded keeps a row for each.
    run : callable
        Runs a job for each file.

    Returns
    -------
    DataFrame
        One row per device, case, pattern, flush, and version of the implementation and of the sparse library: the
        newest, so that a failure gives way to a later success. Ordered by first appearance of the device, then by time.
        Empty, with the same columns, without records.

    Raises
    ------
    RecordError
        A path is missing, a file or folder cannot be read, or a complete line is not a record.
    """
    keys = [*_CASE, "implementation_version", "library", "flush", *(["sweep"] if by_sweep else [])]
    return _named_apart(load_every_run(paths, run).drop_duplicates(keys, keep="last", ignore_index=True))


@python_texts()
def load_every_run(paths: Paths, run: Run = in_turn) -> pd.DataFrame:
    """Read records like `load_records`, but keep every run of a case, oldest first."""
    rows = [row for of in run(partial(_read, file) for file in record_files(paths)) for row in of]
    _name_alike(rows)
    frame = pd.DataFrame(rows, columns=list(COLUMNS)).sort_values("started_at", kind="stable", ignore_index=True)
    return frame.assign(pattern=_pattern(frame))


def current(frame: pd.DataFrame, *, by_sweep: bool = False) -> pd.DataFrame:
    """Keep what a report compares: each device's newest protocol, one flush, and the newest version of each case.

    Where a device has records of several flushes, those of the default are kept; where a problem has records of several
    versions of the sparse library, those of the version whose baseline was faster. ``by_sweep`` keeps a row for each
    sweep that has recorded this version of a case.
    """
    newest = frame.groupby("device")["protocol_version"].transform("max")
    kept = frame[frame["protocol_version"] == newest].sort_values("started_at", kind="stable")
    default = kept["flush"] == Flush.WRITE.value
    kept = kept[default | ~default.groupby(kept["device"]).transform("any")]
    if kept["library"].nunique() > 1:
        kept = _of_faster_library(kept)
    if by_sweep:
        version = kept.groupby(_CASE)["implementation_version"].transform("last")
        kept = kept[kept["implementation_version"] == version]
    return kept.drop_duplicates([*_CASE, "sweep"] if by_sweep else _CASE, keep="last", ignore_index=True)


def _of_faster_library(rows: pd.DataFrame) -> pd.DataFrame:
    keys, known = [*_PROBLEM, "library"], rows["library"] != ""
    times = rows[known].groupby(keys, sort=False)["beside_us"].median().fillna(inf)
    faster = set(times.groupby(level=_PROBLEM, sort=False).idxmin())
    return rows[~known | np.array([key in faster for key in rows[keys].itertuples(index=False, name=None)])]


def record_files(paths: Paths) -> list[Path]:
    """List the record files among and under ``paths``, each once.

    Raises
    ------
    RecordError
        A path does not exist, is another kind of file or cannot be read, a folder under it cannot be listed, or the
        argument holds something else.
    """
    files: dict[Path, None] = {}
    try:
        wanted = [Path(one) for one in ([paths] if isinstance(paths, str | Path) else paths)]
    except TypeError as error:
        raise RecordError(
            f"expected a path of records, or several, found {paths!r}: pass a file or a folder"
        ) from error
    for path in wanted:
        with searching(path):
            if not path.exists():
                raise RecordError(
                    f"{path}: expected a record file or a folder of records, found none; run a sweep first"
                )
            inside = sorted(_record_files_in(path)) if path.is_dir() else _alone(path)
            files.update(dict.fromkeys(p.resolve() for p in inside))
    return list(files)


@contextmanager
def searching(path: Path) -> Iterator[None]:
    """Turn what the system says of a path that cannot be searched into an error of ours.

    Raises
    ------
    RecordError
        Names the path, or what lies below it, with the system's words.
    """
    try:
        yield
    except OSError as error:
        raise RecordError(
            f"{error.filename or path}: expected a file or a folder that can be read, found: "
            f"{error.strerror or error}; give this account the right to read it, or name another path"
        ) from error


def files_below(folder: Path, without: Collection[str] = ()) -> Iterator[Path]:
    """List what is no folder below a folder, at any depth, but for what lies in folders with the names ``without``.

    Raises
    ------
    OSError
        A folder cannot be listed.
    """

    def refuse(error: OSError) -> None:
        raise error

    for place, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if name not in without]
        yield from (Path(place, name) for name in names)


def _record_files_in(folder: Path) -> Iterator[Path]:
    return filter(_holds_records, files_below(folder, without=_SIDE_FOLDERS))


def _alone(path: Path) -> list[Path]:
    """Give a file that a person has named, whatever its name is, unless it holds another kind of facts."""
    if path.name.startswith(TRANSFERS):
        return []
    try:
        found = beginning(path, _BEGINNING)
    except OSError:  # reading tells what is broken
        found = b""
    if found.strip() and b"\n{" not in b"\n" + found:
        raise RecordError(
            f"{path}: expected lines of records, found another kind of file; pass a folder or a records.jsonl that "
            "spmark run has written"
        )
    return [path]


def _holds_records(path: Path) -> bool:
    return path.is_file() and path.name.endswith(SUFFIXES) and not path.name.startswith(_SIDE_FILES)


def environments_beside(file: Path) -> dict[str, Environment]:
    """Give the environments that stand beside a file of records, by digest.

    Raises
    ------
    RecordError
        A file of environments cannot be read.
    """
    sides = row_files(file.parent, "environments")
    return {row.digest: row.environment for side in sides for row in read_rows(side, EnvironmentRow)}


def _read(file: Path) -> list[dict[str, Any]]:
    known = environments_beside(file)
    rows = [_row(measurement, known, file) for measurement in read_measurements(file)]
    unknown = {row["environment"] for row in rows if row["facts"] is None}
    if unknown:
        _log.warning("%s: no row in environments.jsonl for %s: no roofline", file, ", ".join(sorted(unknown)) or "''")
    return rows


def _row(measurement: Measurement, known: dict[str, Environment], file: Path) -> dict[str, Any]:
    environment = known.get(measurement.environment)
    baseline, problem, device = measurement.baseline, measurement.problem, environment and environment.device
    spec = measurement.spec
    row: dict[str, Any] = {name: getattr(spec, name) for name in _OF_SPEC}
    row |= {name: getattr(measurement, name) for name in _COPIED}
    row.update((name, np.array(getattr(measurement, name), np.float64)) for name in _SAMPLES)
    row.update((name, float(getattr(problem, name)) if problem else nan) for name in _FACTS)
    packages = environment.packages if environment and measurement.device_kind is DeviceKind.CUDA else {}
    return row | {
        "sweep": sweep_name(file, measurement.device),
        "device_kind": measurement.device_kind.value,
        "op": spec.op.value + ("-scaled" if spec.scaled else ""),
        # Two problems of RGMS on one matrix may differ in the columns of X alone.
        "matrix": spec.matrix.id + (f" from {spec.width_in}" if spec.width_in not in (0, spec.width) else ""),
        "matrix_kind": measurement.matrix_kind.value if measurement.matrix_kind else "",
        "requested": spec.config,
        "dtype": spec.dtype.value,
        "flush": spec.flush.value,
        "status": measurement.status.value,
        "baseline_implementation": baseline.implementation if baseline else "",
        "baseline_config": baseline.config if baseline else {},
        "baseline_refused": tuple(baseline.refused) if baseline else (),
        "baseline_samples_us": np.array(baseline.samples_us if baseline else [], np.float64),
        "beside_us": float(np.median(baseline.samples_us)) if baseline and baseline.samples_us else nan,
        "facts": environment,
        "library": packages.get(SPARSE_PACKAGE, ""),
        "other_ids": spec.other_ids,
        "names": (spec.matrix.id, *spec.matrix.aliases),
        "copy_bytes_per_s": device.copy_bytes_per_s if device else nan,
        "flops_per_s": device.flops_per_s(spec.dtype) if device else nan,
    }


def _name_alike(rows: list[dict[str, Any]]) -> None:
    """Name a matrix by its origin in all rows, where one of them says that a mirror's name means the same matrix."""
    origins: dict[str, str] = {}
    for names in {row["names"] for row in rows if len(row["names"]) > 1}:
        origins |= dict.fromkeys(names, min(names, key=lambda name: name.startswith("mirror/")))
    for row in rows:
        own = row.pop("names")[0]
        name = origins.get(own, own)
        row["matrix"] = row["matrix"].replace(own, name, 1)
        row["case_id"] = row["case_id"].replace(f"/{own}/J", f"/{name}/J", 1)


def sweep_name(file: Path, device: str) -> str:
    """Give the name of a record file's sweep, which the file's name or its folders say."""
    stem = file.name.split(".", 1)[0]
    if stem != "records":
        return stem
    return file.parent.parent.name if file.parent.name == path_component(device) else file.parent.name


def _pattern(frame: pd.DataFrame) -> pd.Series:
    """Give the pattern that each row counts for; a failure may have come before its matrix was loaded.

    Such a row counts for the pattern of the next row of its case, or of the last one where no later row has a pattern.
    Two problems of RGMS that differ in the columns of X are no problems of one pattern, as their matrices' names say.
    """
    groups = frame["matrix_hash"].where(frame["matrix_hash"] != "").groupby([frame["device"], frame["case_id"]])
    patterns = groups.bfill().fillna(groups.ffill()).fillna("")
    wider = (frame["width_in"] != 0) & (frame["width_in"] != frame["width"]) & (patterns != "")
    return patterns.where(~wider, patterns + " from " + frame["width_in"].astype(str))


def _named_apart(frame: pd.DataFrame) -> pd.DataFrame:
    patterns = frame[frame["pattern"] != ""].groupby("matrix")["pattern"].nunique()
    shared = frame["matrix"].isin(patterns[patterns > 1].index) & (frame["pattern"] != "")
    named = frame["matrix"] + " #" + frame["pattern"].str[:6]
    return frame.assign(matrix=frame["matrix"].where(~shared, named))
