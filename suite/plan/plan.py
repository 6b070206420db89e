"""The plan of a run: each case of a sweep with what will be done with it: run, refused here, or left alone."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from pydantic import ValidationError

from spmark.datasets.sources.table import find_source, own_file
from spmark.datasets.sweep.model import ImplementationSpec, Sweep, expand
from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.digest import implementation_version
from spmark.impls.core.enums import Op, RelationalOp
from spmark.impls.core.errors import SweepError, none_of
from spmark.impls.core.files import in_place_of_file, is_file, path_component
from spmark.impls.core.outside import is_file_class
from spmark.impls.table import file_of, module_of, name_of
from spmark.records.schema import CaseSpec, Environment, Flush, Orientation
from spmark.suite.plan.options import Options
from spmark.suite.plan.refusals import refusals
from spmark.suite.plan.resume import History, why_skipped


@dataclass(frozen=True)
class Item:
    """One case and the action to take."""

    spec: CaseSpec
    skipped: str | None = None
    """Why it is left alone."""
    refused: str | None = None
    """Why it cannot run on this device: recorded without loading the matrix."""
    other_baseline: str = ""
    """What a skipped case was measured beside, where the case asks for another baseline now."""

    @property
    def action(self) -> str:
        """``skip``, ``refuse`` or ``run``."""
        if self.skipped is not None:
            return "skip"
        return "run" if self.refused is None else "refuse"


@dataclass(frozen=True)
class Chosen:
    """The cases that are asked for on a kind of device, before anything is known of earlier runs."""

    sweep: Sweep
    """As it was asked for."""
    cases: tuple[CaseSpec, ...]
    """In the order to run them: cases of one problem stand together."""
    refused: Mapping[str, str]
    """Why a case cannot run here, by case id."""


@dataclass(frozen=True)
class Plan:
    """What a run does."""

    items: tuple[Item, ...]
    folder: Path
    """Of the records."""
    history: History

    def todo(self) -> Iterator[Item]:
        """Give the items that a record will be written for."""
        return (item for item in self.items if item.skipped is None)

    def count(self, action: str) -> int:
        """Count the items with an action."""
        return sum(item.action == action for item in self.items)

    def memory_bytes(self, spec: CaseSpec) -> int | None:
        """Give what A in CSR, the dense operands and the result take; None where the sizes of A are not known yet."""
        recorded = self.history.problems.get(spec.matrix.id)
        facts = recorded or find_source(spec.matrix.source).likely(spec.matrix.name)
        if facts is None:
            return None
        turned = not recorded and spec.matrix.orientation is Orientation.TRANSPOSED
        num_rows = facts.num_cols if turned else facts.num_rows
        dense = (facts.num_cols + facts.num_rows) * spec.width + (facts.nnz if spec.op is Op.SDDMM else 0)
        if spec.op is RelationalOp.RGMS:
            known = recorded.relations if recorded else 0
            relations = known or spec.matrix.relations or facts.num_cols // facts.num_rows
            num_cols = facts.num_cols if known else facts.num_cols // relations
            dense = (num_cols + relations * spec.width) * spec.width_in + num_rows * spec.width
        return 4 * (num_rows + 1 + facts.nnz) + spec.dtype.itemsize * (facts.nnz + dense)


def record_folder(out: Path, sweep: str, device: str) -> Path:
    """Give the folder below ``out`` that a sweep's records on a device go to."""
    return out / path_component(sweep) / path_component(device)


def choose(sweep: Sweep, kind: DeviceKind, only: Sequence[str] = ()) -> Chosen:
    """Give a sweep's cases on a kind of device that the filters ask for.

    Raises
    ------
    SweepError
        A file cannot be used, a filter leaves no case, or an implementation, its config or the baseline is unknown.
    """
    cases = select(expand(with_files(sweep), kind), only)
    return Chosen(sweep, tuple(cases), refusals(cases, kind))


def make_plan(chosen: Chosen, environment: Environment, folder: Path, options: Options) -> Plan:
    """Decide over every case. O(bytes of the files that matrices are read from).

    Raises
    ------
    SweepError
        A case that is to run reads its matrix from a file that is missing; the message names every such file.
    RecordError
        A file of earlier records cannot be read.
    """
    history = History.read(folder)
    # Where times mean nothing, warm samples are never missing.
    warm = options.warm and environment.device.kind is not DeviceKind.HOST_SIMT
    items, running = [], 0
    for spec in completed(chosen.cases, options.flush):
        reason, other = chosen.refused.get(spec.case_id), ""
        tried = history.earlier(spec, environment, of_this_library=bool(options.sparse_library))
        skipped = why_skipped(tried, environment.packages, options.retry, warm)
        if skipped is not None and tried is not None and tried.baseline and spec.baseline not in (None, tried.baseline):
            other = tried.baseline
        if skipped is None and reason is None:
            running += 1
            if options.limit is not None and running > options.limit:
                skipped = f"over --limit {options.limit}"
        items.append(Item(spec, skipped, reason, other))
    _refuse_missing_files(item.spec for item in items if item.action == "run")
    return Plan(tuple(items), folder, history)


def completed(cases: Sequence[CaseSpec], flush: Flush = Flush.WRITE) -> Iterator[CaseSpec]:
    """Give cases with what tells them apart on this machine: version of the code, content of own files, and flush."""
    versions = {name: implementation_version(module_of(name)) for name in {case.implementation for case in cases}}
    contents: dict[Path, str] = {}
    for case in cases:
        matrix = case.matrix
        if (file := own_file(matrix)) is not None:
            if file not in contents:
                contents[file] = _content(file)
            matrix = matrix.model_copy(update={"file_sha256": contents[file]})
        facts = {"matrix": matrix, "flush": flush, "implementation_version": versions[case.implementation]}
        yield case.model_copy(update=facts)


def _content(file: Path) -> str:
    """Give the digest of a file; empty where the file is missing or unreadable, which loading the matrix explains."""
    if not is_file(file):
        return ""
    try:
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError:
        return ""


def _refuse_missing_files(cases: Iterator[CaseSpec]) -> None:
    found: dict[str, list[str]] = {}
    for file in dict.fromkeys(own_file(case.matrix) for case in cases):
        if file is not None and not is_file(file):
            found.setdefault(in_place_of_file(file), []).append(str(file.absolute()))
    if found:
        told = " and ".join(f"{what} at {', '.join(paths)}" for what, paths in found.items())
        raise SweepError(
            f"expected the sweep's matrices in files, found {told}; a relative path begins at the folder of the "
            "sweep's file"
        )


def with_files(sweep: Sweep) -> Sweep:
    """Import the files that a sweep names, and put the names of their classes in the place of the files.

    Raises
    ------
    SweepError
        A file cannot be used, or two entries name one implementation with one config.
    """
    names = {
        entry.name: name_of(entry.name, Path(entry.folder))
        for entry in sweep.implementations
        if is_file_class(entry.name)
    }
    if not names:
        return sweep

    def named(entry: ImplementationSpec) -> ImplementationSpec:
        name = names.get(entry.name, entry.name)
        return entry.model_copy(update={"name": name, "label": name if entry.label == entry.name else entry.label})

    changed = {
        "implementations": tuple(map(named, sweep.implementations)),
        "baseline": {kind: names.get(name, name) for kind, name in sweep.baseline.items()},
    }
    try:
        # A model's own rules once more: two files may be one, and a file may have the name of another entry.
        return Sweep.model_validate(sweep.model_copy(update=changed).model_dump(by_alias=True))
    except ValidationError as error:
        raise SweepError(f"{sweep.name}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from error


def files_of(cases: Iterable[CaseSpec]) -> tuple[str, ...]:
    """List the files and classes that the cases' implementations and baselines come from, for another process."""
    names = dict.fromkeys(name for case in cases for name in (case.implementation, case.baseline) if name is not None)
    return tuple(file for name in names if (file := file_of(name)) is not None)


FIELDS: dict[str, Callable[[CaseSpec], tuple[str, ...]]] = {
    "op": lambda case: (str(case.op),),
    "matrix": lambda case: (case.matrix.name, *(alias.partition("/")[2] for alias in case.matrix.aliases)),
    "source": lambda case: (case.matrix.source,),
    "width": lambda case: (str(case.width),),
    "width_in": lambda case: (str(case.width_in),),
    "dtype": lambda case: (str(case.dtype),),
    "scaled": lambda case: (str(case.scaled).lower(),),
    "implementation": lambda case: (case.implementation,),
    "label": lambda case: (case.label,),
}
"""What ``key=value`` compares with: one of these is enough."""


def select(cases: Sequence[CaseSpec], only: Sequence[str]) -> list[CaseSpec]:
    """Keep the cases that every filter accepts, in order.

    Parameters
    ----------
    cases : sequence of CaseSpec
        A sweep's cases.
    only : sequence of str
        Filters: ``key=value`` with a key of `FIELDS` and comma-separated patterns for the value; otherwise a pattern of
        case ids (with ``*``, ``?`` or ``[``), or a part of one. An implementation may be a class in a file.

    Raises
    ------
    SweepError
        A key is unknown, or no case is left; says which filter left none.
    """
    kept = list(cases)
    for text in only:
        accepts = _filter(text)
        left = [case for case in kept if accepts(case)]
        if not left:
            some = ", ".join(case.case_id for case in kept[:3]) or "no case at all"
            raise SweepError(f"--only {text}: expected it to leave a case, found none among {len(kept)} such as {some}")
        kept = left
    return kept


def _filter(text: str) -> Callable[[CaseSpec], bool]:
    key, equals, value = text.partition("=")
    if equals:
        if key not in FIELDS:
            raise SweepError(f"--only {text}: {none_of('a key', key, FIELDS)}")
        patterns = [name_of(one) if key == "implementation" else one for one in value.split(",")]
        return lambda case: any(fnmatchcase(found, pattern) for found in FIELDS[key](case) for pattern in patterns)
    if any(sign in text for sign in "*?["):
        return lambda case: any(fnmatchcase(one, text) for one in (case.case_id, *case.other_ids))
    return lambda case: any(text in one for one in (case.case_id, *case.other_ids))
