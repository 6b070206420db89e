"""Records of sweeps into the histories of airspeed velocity: a result file per machine and commit."""

from __future__ import annotations

import logging
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import product
from math import isnan
from pathlib import Path
from statistics import median

from asv.results import Results, get_filename
from asv.runner import BenchmarkResult
from asv.util import write_json

from spmark.impls.core.enums import DeviceKind
from spmark.impls.core.errors import RecordError
from spmark.impls.core.files import path_component
from spmark.impls.core.untrusted import reading
from spmark.records.plausible import read_candidates, read_measurements
from spmark.records.rowfile import row_files
from spmark.records.schema import SPARSE_PACKAGE, CandidateRow, Environment, Flush, Measurement
from spmark.report.candidates import absence, absent_candidates
from spmark.report.records import environments_beside, record_files
from spmark.suite.asv.machine import machine_keys
from spmark.suite.asv.series import MATRICES, WIDTHS, Benchmark, swept, write_list
from spmark.suite.asv.track import of_outcome
from spmark.suite.benchmarks import tracked
from spmark.suite.environment import is_commit

_MACHINE_LAYOUT = 1
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Imported:
    """The outcome of an import, for one machine and commit."""

    file: Path | None
    """None where no record is of the protocol and the flush that the benchmarks compare."""
    machine: str
    commit: str
    cases: int
    """Cases that are followed."""
    left_out: int
    """Records of matrices, widths, implementations or configs that no benchmark follows."""
    other_protocol: int
    """Cases whose records are of another protocol, flush or sparse library alone: benchmarks would show them as not
    measured."""


@dataclass
class _Group:
    """The newest record of every case of one environment."""

    environment: Environment
    rows: dict[str, Measurement] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)
    """The protocol, the flush, or the sparse library, of cases that were measured by another than is followed."""
    candidates: dict[tuple[str, str], list[CandidateRow]] = field(default_factory=dict)

    @property
    def library(self) -> str:
        """The version of a GPU's sparse library."""
        on_gpu = self.environment.device.kind is DeviceKind.CUDA
        return self.environment.packages.get(SPARSE_PACKAGE, "") if on_gpu else ""


def import_records(paths: Sequence[Path], results: Path, repository: Path, commit: str | None = None) -> list[Imported]:
    """Write result files out of records.

    Parameters
    ----------
    paths : sequence of Path
        Record files, or folders that hold some.
    results : Path
        ``results_dir`` of ``asv.conf.json``.
    repository : Path
        Checkout that knows the commits.
    commit : str, optional
        What was measured, where the records do not say so, or say that the tree was changed.

    Raises
    ------
    RecordError
        Records have no environment, are all of another protocol or flush than this checkout's benchmarks, or are of a
        changed tree or of a commit that the repository does not know.
    """
    groups = _groups(paths)
    _check_protocols(groups)
    return [_imported(group, results, repository, commit) for group in groups]


def _check_protocols(groups: Sequence[_Group]) -> None:
    others = Counter(other for group in groups for other in group.others.values())
    if others and not any(group.rows for group in groups):
        counts = ", ".join(f"{count} cases of {other}" for other, count in sorted(others.items()))
        raise RecordError(
            f"expected records of protocol {tracked.PROTOCOL}, which the benchmarks of this checkout compare, and of "
            f"flush {Flush.WRITE}, found {counts}; nothing was imported: measure them again with this checkout, or "
            "import them in a checkout of their protocol"
        )


def _imported(group: _Group, results: Path, repository: Path, commit: str | None) -> Imported:
    if not group.rows:
        keys = machine_keys(group.environment)
        return Imported(None, keys["machine"], commit or group.environment.commit, 0, 0, len(group.others))
    full, date_ms = _commit_given(repository, commit) if commit else _commit_recorded(repository, group.environment)
    return _write(group, results, full, date_ms)


def _groups(paths: Sequence[Path]) -> list[_Group]:
    groups: dict[str, _Group] = {}
    if absent := absent_candidates(paths):
        _log.warning("%s", absence(absent))
    for path in record_files(paths):
        if path.suffix == ".json":
            continue
        known = environments_beside(path)
        for row in read_measurements(path):
            if row.environment not in known:
                wanted = f"expected a row {row.environment!r} ({row.case_id})"
                raise RecordError(f"{path.parent}/environments.jsonl: {wanted}, found none: no machine")
            group = groups.setdefault(row.environment, _Group(known[row.environment]))
            if row.spec.protocol_version != tracked.PROTOCOL:
                group.others[row.case_id] = f"protocol {row.spec.protocol_version}"
            elif row.spec.flush is not Flush.WRITE:
                group.others[row.case_id] = f"flush {row.spec.flush}"
            else:
                group.rows[row.case_id] = row
        for seen in (row for side in row_files(path.parent, "candidates") for row in read_candidates(side)):
            if seen.environment in groups:
                key = (seen.case_id, seen.implementation_version)
                groups[seen.environment].candidates.setdefault(key, []).append(seen)
    _follow_one_library(groups.values())
    for group in groups.values():
        group.others = {case: other for case, other in group.others.items() if case not in group.rows}
    return list(groups.values())


def _follow_one_library(groups: Iterable[_Group]) -> None:
    """Keep each machine's records of one version of the sparse library, the one that most of its records are of."""
    counts: dict[str, Counter[str]] = {}
    for group in groups:
        counts.setdefault(machine_keys(group.environment)["machine"], Counter())[group.library] += len(group.rows)
    for group in groups:
        if group.library != counts[machine_keys(group.environment)["machine"]].most_common(1)[0][0]:
            group.others |= dict.fromkeys(group.rows, f"{SPARSE_PACKAGE} {group.library}")
            group.rows = {}


def _commit_recorded(repository: Path, environment: Environment) -> tuple[str, int]:
    """Give the commit that records name; only a hash reaches git, since records may say anything."""
    name = environment.commit
    if not is_commit(name):
        recorded = f"{name[:-1]} with changes" if is_commit(name.removesuffix("+")) else repr(name) if name else "none"
        raise RecordError(
            f"expected records of a commit, found {recorded}: name the commit they count for with --commit"
        )
    return _commit_given(repository, name)


def _commit_given(repository: Path, name: str) -> tuple[str, int]:
    """Give the full hash of what the user or a record calls a commit, and its time in milliseconds since 1970."""
    show = ["show", "--no-patch", "--format=%H %ct", "--end-of-options", f"{name}^{{commit}}"]
    try:
        command = ["git", "-C", str(repository), *show]
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout
        full, seconds = answer.split()
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise RecordError(f"{repository}: expected a repository that has the commit {name!r}, found none") from error
    return full, int(seconds) * 1000


def _write(group: _Group, results: Path, commit: str, date_ms: int) -> Imported:
    keys = machine_keys(group.environment)
    python = ".".join(group.environment.packages.get("python", "").split(".")[:2])
    env_name = path_component(f"imported-py{python}")
    name = get_filename(keys["machine"], commit, env_name)
    answers, left_out = _answers(group)
    held = Results(keys | {"python": python}, {}, commit, date_ms, python, env_name, {})
    with reading(results / name, "a result file of airspeed velocity", RecordError, remedy="delete the file"):
        held.load_data(str(results))
        for benchmark in swept():
            _add(held, benchmark, answers, min(row.started_at for row in group.rows.values()))
    try:
        held.save(str(results))
        machine = results / keys["machine"] / "machine.json"
        if not machine.exists():
            write_json(machine, keys, _MACHINE_LAYOUT)
    except OSError as error:
        raise RecordError(f"{results / name}: cannot be written: {error.strerror}") from error
    write_list(results, swept())
    return Imported(results / name, keys["machine"], commit, len(answers), left_out, len(group.others))


def _answers(group: _Group) -> tuple[dict[tuple[str, ...], tracked.Answer], int]:
    answers: dict[tuple[str, ...], tracked.Answer] = {}
    for row in group.rows.values():
        spec, matrix = row.spec, row.spec.matrix.id
        inside = matrix in MATRICES and spec.width in WIDTHS and not spec.scaled
        if inside and spec.implementation in tracked.IMPLEMENTATIONS and not spec.config:
            seen = group.candidates.get((spec.case_id, spec.implementation_version), [])
            key = (str(spec.op), spec.implementation, matrix, str(spec.width), str(spec.dtype))
            answers[key] = of_outcome(row, seen, spec.protocol_version).model_dump(mode="json")
    return answers, len(group.rows) - len(answers)


def _add(held: Results, benchmark: Benchmark, answers: tracked.Answers, started_at: datetime) -> None:
    """Add a benchmark to results; where the answers say nothing of a combination, the value that is there stays."""
    values = list(benchmark.values(answers))
    # Of combinations that it has not seen, airspeed velocity would say that they failed.
    known = held.get_result_params(benchmark.name) if benchmark.name in held.get_all_result_keys() else []
    selected = {
        place
        for place, combination in enumerate(product(*benchmark.params))
        if not (isinstance(values[place], float) and isnan(values[place]))
        or not (known and all(value in there for value, there in zip(combination, known, strict=True)))
    }
    samples = [value["samples"] if isinstance(value, Mapping) else None for value in values]
    result = BenchmarkResult(
        result=[median(of) if of else value for of, value in zip(samples, values, strict=True)],
        samples=samples,
        number=[1 if of else None for of in samples],
        errcode=0,
        stderr="",
        profile=None,
    )
    held.add_result(benchmark.entry(), result, started_at, record_samples=True, selected_idx=selected)
