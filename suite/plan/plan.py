"""The plan of a run: each case of a sweep with what will be done with it: run, refused here, or left alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spmark.datasets.download import file_digest
from spmark.datasets.source import Facts
from spmark.datasets.sources.table import find_source, own_file
from spmark.datasets.sweep.model import Sweep, expand
from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.digest import implementation_version
from spmark.impls.core.errors import SweepError
from spmark.impls.core.files import in_place_of_file, is_file
from spmark.impls.core.names import path_component
from spmark.impls.core.problem import Op
from spmark.impls.core.record import CaseSpec, Environment, Flush, MatrixRef, Orientation
from spmark.impls.table import package
from spmark.suite.plan.filters import select
from spmark.suite.plan.options import Options
from spmark.suite.plan.plugins import with_files
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
        facts = self._facts(spec.matrix)
        if facts is None:
            return None
        dense = (facts.num_cols + facts.num_rows) * spec.width + (facts.nnz if spec.op is Op.SDDMM else 0)
        return 4 * (facts.num_rows + 1 + facts.nnz) + spec.dtype.itemsize * (facts.nnz + dense)

    def _facts(self, matrix: MatrixRef) -> Facts | None:
        """Give the sizes of A that an earlier record or the matrix's source states."""
        if problem := self.history.problems.get(matrix.id):
            return Facts(problem.num_rows, problem.num_cols, problem.nnz)
        facts = find_source(matrix.source).facts(matrix.name)
        if facts is None or matrix.orientation is Orientation.A:
            return facts
        return Facts(facts.num_cols, facts.num_rows, facts.nnz)


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
        tried = history.tried.get(spec.key(environment))
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
    versions = {name: implementation_version(package(name)) for name in {case.implementation for case in cases}}
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
        return file_digest(file)
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
