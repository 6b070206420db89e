"""From a batch of records to the commands that repeat the batch, and to the facts that cannot be repeated.

Records may come from anywhere and commands are pasted into a shell: words that spmark would not write are left out and
named, all others are quoted, and every line of text is printable.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import yaml

from spmark.datasets.sweep.model import Sweep, expand
from spmark.datasets.sweep.reading import packaged_sweeps
from spmark.impls.core.digest import implementation_version
from spmark.impls.core.errors import SpmarkError
from spmark.impls.core.fileclass import is_file_class
from spmark.impls.core.load import Load
from spmark.impls.core.names import is_commit, path_component, printable
from spmark.impls.core.record import PROTOCOL_VERSION, Environment, Flush, Measurement, Status
from spmark.impls.table import IMPLEMENTATIONS, package
from spmark.suite.run.provenance import Batch, RunRow, is_run, sweep_data

_SOME = 3
_PYTHON = re.compile(r"3\.\d{1,2}(?:\.\w{1,8})?")
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]*")


@dataclass(frozen=True)
class Recipe:
    """How to repeat one batch."""

    about: tuple[str, ...]
    """What it is, line by line."""
    commands: tuple[str, ...]
    """For a shell in a clone of the project; a command may have several lines."""
    limits: tuple[str, ...]
    """Differences to expect."""


def recipe(batch: Batch, sweep_name: str) -> Recipe:
    """Make the recipe of a batch; ``sweep_name``, from the place of the file, is used where no run is on record."""
    limits = list(_limits(batch))
    commands = [*_checkout(batch.environment)]
    if batch.run is not None and is_run(batch.run.command):
        commands += _recorded(batch.run, batch.environment, sweep_name)
        limits += _files_limits(batch.run)
    else:
        if batch.run is not None and batch.run.command:
            limits.append(f"the command on record is not one that spmark writes: {shlex.join(batch.run.command)}")
        rebuilt, missing = _rebuilt(batch.records, sweep_name)
        commands += rebuilt
        limits.append(missing)
    return Recipe(tuple(map(printable, _about(batch))), tuple(commands), tuple(map(printable, limits)))


def _about(batch: Batch) -> Iterator[str]:
    records, environment = batch.records, batch.environment
    statuses = Counter(str(record.status) for record in records)
    times = sorted(record.started_at for record in records)
    yield (
        f"{len(records)} records ({', '.join(f'{count} {name}' for name, count in sorted(statuses.items()))}), "
        f"{times[0]:%Y-%m-%d %H:%M:%S} to {times[-1]:%Y-%m-%d %H:%M:%S} UTC"
    )
    if environment is None:
        return
    driver = f", driver {environment.driver}, CUDA {environment.cuda}" if environment.driver else ""
    yield (
        f"{environment.device.name}{driver}; {environment.cpu}, {environment.cores} cores, "
        f"{environment.memory_bytes / 2**30:.0f} GiB; {environment.system}"
    )
    clocks = [clock for record in records for clock in record.clocks_mhz]
    if clocks:
        yield f"clock of the multiprocessors: {min(clocks):.0f} to {max(clocks):.0f} MHz, not locked"
    loads = [Load(environment.cores, record.free_cores) for record in records]
    busy = sum(load.busy for load in loads)
    if any(load.free_cores is not None for load in loads):
        worst = max(loads, key=lambda load: load.taken_cores)
        yield f"the machine was busy in {busy} of {len(loads)} records: at the most, {worst}"
    hashed = len({record.matrix_hash for record in records} - {""})
    yield f"{len({record.matrix_id for record in records})} matrices, {hashed} patterns with a SHA-256"


def _checkout(environment: Environment | None) -> Iterator[str]:
    if environment is None:
        return
    commit = environment.commit.removesuffix("+")
    if is_commit(commit):
        yield shlex.join(["git", "checkout", commit])
    python = environment.packages.get("python", "")
    known = _PYTHON.fullmatch(python) is not None
    yield shlex.join(["python" + (".".join(python.split(".")[:2]) if known else "3"), "-m", "venv", ".venv"])
    pins = [f"{name}=={version}" for name, version in _others(environment) if _can_be_pinned(name, version)]
    yield shlex.join([".venv/bin/pip", "install", "--editable", ".", *pins])


def _others(environment: Environment) -> list[tuple[str, str]]:
    return [(name, version) for name, version in environment.packages.items() if name not in ("python", "spmark")]


def _can_be_pinned(name: str, version: str) -> bool:
    return _PACKAGE.fullmatch(name) is not None and _VERSION.fullmatch(version) is not None


def _recorded(run: RunRow, environment: Environment | None, sweep_name: str) -> Iterator[str]:
    words, data = list(run.command), run.sweep
    commit = environment.commit if environment else ""
    known = words[2] in packaged_sweeps() and is_commit(commit)
    if data is not None and not known:
        # The file is not in the checkout, or may have been changed: it is written out, with overrides in it.
        words[2] = f"{path_component(str(data.get('name', sweep_name)))}.yaml"
        yield _sweep_file(words[2], data)
        words = [word for at, word in enumerate(words) if word != "--set" and words[at - 1] != "--set"]
    yield ".venv/bin/" + shlex.join(words)


def _sweep_file(name: str, data: dict[str, object]) -> str:
    # Every line of a value is indented, so that no line of a value can be the END.
    text = yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=110)
    return f"cat > {shlex.quote(name)} <<'END'\n{text}END"


def _rebuilt(records: Sequence[Measurement], name: str) -> tuple[list[str], str]:
    """Give the commands that measure the recorded cases, where no command line is on record."""
    wanted = {record.case_id for record in records}
    kind, flushes = records[0].device_kind, {record.flush for record in records}
    options = ["--device", str(kind), *(["--flush", str(Flush.READ)] if flushes == {Flush.READ} else [])]
    if name in packaged_sweeps():
        sweep = Sweep.load(name)
        cases = {case.case_id for case in expand(sweep, kind)}
        if wanted <= cases:
            more = f"; it measures {len(cases - wanted)} cases more" if cases - wanted else ""
            return [f".venv/bin/{shlex.join(['spmark', 'run', name, *options])}"], (
                f"the command line is not on record; this one follows from the folder and holds every case{more}"
            )
    made = _sweep_of(records, name)
    if made is not None and wanted <= {case.case_id for case in expand(made, kind)}:
        extra = len(expand(made, kind)) - len(wanted)
        file = f"{path_component(made.name)}.yaml"
        run = ["spmark", "run", file, *options]
        return [_sweep_file(file, sweep_data(made)), f".venv/bin/{shlex.join(run)}"], (
            "neither command line nor sweep are on record; both follow from the cases"
            + (f", and measure {extra} cases more" if extra else "")
        )
    some = ", ".join(sorted(wanted)[:_SOME])
    return [], f"neither command line nor sweep are on record, and {len(wanted)} cases give no sweep: {some}"


def _sweep_of(records: Sequence[Measurement], name: str) -> Sweep | None:
    baselines = {record.baseline.implementation for record in records if record.baseline}
    widths, seeds = sorted({record.width for record in records}), {record.seed for record in records}
    if len(seeds) != 1 or len(baselines) > 1:
        return None
    if any(map(is_file_class, baselines | {record.implementation for record in records})):
        return None  # spmark writes names alone, and what is pasted into a shell imports no file that a record names
    entries = {(r.implementation, r.label, yaml.safe_dump(r.requested)): r for r in records}
    names = [{"name": r.implementation, "label": r.label, "config": r.requested} for r in entries.values()]
    names += [{"name": base} for base in baselines if base not in {r.implementation for r in records}]
    matrices = {(r.source, r.matrix, r.orientation) for r in records}
    data = {
        "schema": 1,
        "name": name,
        "ops": sorted({f"{r.op}_scaled" if r.scaled else str(r.op) for r in records}),
        "matrices": [{"source": s, "name": m, "orientation": str(o)} for s, m, o in sorted(matrices)],
        "widths": widths,
        "dtypes": sorted({str(r.dtype) for r in records}),
        "implementations": names,
        "baseline": {str(records[0].device_kind): base for base in baselines},
        "seed": seeds.pop(),
    }
    try:
        return Sweep.model_validate(data)
    except (ValueError, SpmarkError):
        return None


def _limits(batch: Batch) -> Iterator[str]:
    records, environment = batch.records, batch.environment
    if environment is None:
        yield "the machine and the software are not on record: environments.jsonl has no row for these records"
    else:
        yield from _code_limits(batch, environment)
        yield f"times hold on {environment.device.name}" + (
            f" with driver {environment.driver}" if environment.driver else ""
        )
        yield "packages that are not named above, and the operating system, are not pinned"
    throttled = sum(bool(record.throttled) for record in records)
    if throttled:
        yield f"{throttled} records were measured while the driver lowered clocks"
    searched = sorted({r.implementation for r in records if r.search is not None and r.search.measured})
    if searched:
        yield f"configs that were chosen by measuring may differ: {', '.join(searched)}"
    repeats = max(
        Counter((r.case_id, r.implementation_version) for r in records if r.status is Status.OK).values(), default=0
    )
    if repeats > 1:
        yield f"cases were measured up to {repeats} times: run it as often, each time with another --out"
    late = sum(record.status is Status.TIMEOUT for record in records)
    if late:
        yield f"{late} cases ended at a time limit, which another machine may not reach"
    unknown = len({record.matrix_id for record in records if not record.matrix_hash and record.status is Status.OK})
    if unknown:
        yield f"{unknown} matrices have no hash: a source that changed would not be noticed"
    protocols = {record.protocol_version for record in records} - {PROTOCOL_VERSION}
    if protocols:
        yield f"this spmark measures by protocol {PROTOCOL_VERSION}, the records by {', '.join(map(str, protocols))}"


def _files_limits(run: RunRow) -> Iterator[str]:
    entries = (run.sweep or {}).get("implementations", [])
    names = [entry.get("name") for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    names += [one for word in run.command for one in word.partition("=")[2].split(",")]
    files = dict.fromkeys(name for name in names if isinstance(name, str) and is_file_class(name))
    if files:
        yield f"the run imports code that is not part of the project, to be brought along: {', '.join(files)}"


def _code_limits(batch: Batch, environment: Environment) -> Iterator[str]:
    if not environment.commit:
        yield "the commit is not on record"
    elif not is_commit(environment.commit.removesuffix("+")):
        yield f"the commit on record is not a hash, so nothing is checked out: {environment.commit!r}"
    elif environment.commit.endswith("+"):
        digest = batch.run.changes_digest if batch.run else ""
        yield "the checkout had changes that were not committed" + (f" (digest {digest})" if digest else "")
    odd = [f"{name}=={version}" for name, version in _others(environment) if not _can_be_pinned(name, version)]
    if odd:
        yield f"packages on record with invalid names or versions are not installed: {', '.join(odd)}"
    versions: dict[str, set[str]] = {}
    for record in batch.records:
        if record.implementation in IMPLEMENTATIONS:
            versions.setdefault(record.implementation, set()).add(record.implementation_version)
    other = [name for name, digests in versions.items() if digests != {implementation_version(package(name))}]
    if other:
        yield f"the code here is not the code of these records: {', '.join(sorted(other))}; check that commit out"
