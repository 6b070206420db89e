"""``spmark explain``: the composition of a recorded case, made again on the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from rich.markup import escape

from spmark.datasets.loading_child import load_in_child
from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import BuildError, RecordError
from spmark.impls.core.guard import reading
from spmark.impls.core.names import path_component
from spmark.impls.core.problem import Problem
from spmark.impls.core.record import Measurement, Status
from spmark.impls.core.stores import Stores
from spmark.impls.runtime.device import shipped
from spmark.suite.cli.console import answer, console, say, table
from spmark.suite.cli.tune import write_composition_page
from spmark.suite.run.provenance import read_batches
from spmark.suite.tuned import measured, stores_of

_SHOWN = 5
"""Cases that a message names."""


def explain_case(record: str, results: Sequence[Path], out: Path | None, as_json: bool) -> None:
    """Print the stores of a recorded case and write its page.

    Raises
    ------
    RecordError
        No case, or several, have ``record`` in their ids, or the case's matrix is another one today.
    SpmarkError
        The matrix cannot be loaded, or the recorded plan cannot be laid out again.
    """
    row, problem, device, stores = laid_out(record, results)
    (told,) = measured([row], device)
    notices = []
    if stores.stored != row.stored:
        notices.append(
            f"The recorded plan stored {row.stored:,} elements, and today's code stores {stores.stored:,}: the picture "
            "shows what today's code does."
        )
    screen = console(as_json)
    out = out or Path("out/explain") / f"{path_component('-'.join(row.case_id.split('/')))}.html"
    name = _names(row)[1]
    page = write_composition_page(name, problem, device, [replace(told, stores=stores)], out, notices=notices)
    parts = [{name: value for name, value in asdict(part).items() if value is not None} for part in stores.parts]
    if as_json:
        answer({"case": row.case_id, "config": row.config, "stores": parts, "notices": notices, "page": page})
        return
    screen.print(table(name, parts, plain=True))
    for notice in notices:
        say(screen, f"[yellow]{escape(notice)}[/yellow]")
    say(screen, escape(str(page)))


def laid_out(record: str, results: Sequence[Path]) -> tuple[Measurement, Problem, DeviceSpec, Stores]:
    """Find a recorded case, and lay its plan out again on the host.

    Raises
    ------
    RecordError
        As `explain_case`.
    SpmarkError
        As `explain_case`.
    """
    row, device = find_record(record, results)
    case = row.spec
    matrix = load_in_child(case.matrix, case.seed).csr
    if matrix.hash != row.matrix_hash:
        raise RecordError(
            f"{row.case_id}: expected {case.matrix.id} with the pattern {row.matrix_hash[:12]} of the record, found "
            f"{matrix.hash[:12]}: its source gives another matrix today"
        )
    problem = Problem(case.op, matrix, case.width, case.dtype, case.scaled)
    with reading(row.case_id, "a config that a plan of today can have", BuildError, "record the case anew"):
        return row, problem, device, stores_of(row, problem, device)


def find_record(record: str, results: Sequence[Path]) -> tuple[Measurement, DeviceSpec]:
    """Find a case that has a plan by its id or a part of it; of several records of one case, the last.

    A label may stand in place of the implementation, since a variant's id ends in digits that nobody knows by heart.
    Whole words between strokes come before parts of words: ``/stile/`` is not ``/stile_mixture/``.

    Raises
    ------
    RecordError
        No case or several have it, or the record's device is not known here.
    """
    found: dict[str, tuple[Measurement, DeviceSpec | None]] = {}
    for batch in (batch for path in results for batches in read_batches(path).values() for batch in batches):
        for row in batch.records:
            later = row.case_id not in found or found[row.case_id][0].started_at <= row.started_at
            if any(record in name for name in _names(row)) and row.status is Status.OK and later:
                found[row.case_id] = row, batch.environment.device if batch.environment else None
    words = f"/{record.strip('/')}/"
    of_label = [name for name, (row, _) in found.items() if words in f"/{_names(row)[1]}/"]
    name = record if record in found else of_label[0] if len(of_label) == 1 else ""
    found = {name: found[name]} if name else found
    if len(found) != 1:
        names = [_names(row)[1] for row, _ in found.values()]
        some = f"{len(found)}, such as {', '.join(names[:_SHOWN])}" if found else "none"
        places = ", ".join(map(str, results))
        todo = "write more of the id" if found else "run the case first, or name another folder with --results"
        raise RecordError(
            f"expected one case that ended well with {record!r} in its id, found {some}, in {places}: {todo}"
        )
    ((row, device),) = found.values()
    return row, device or shipped(row.device)


def _names(row: Measurement) -> tuple[str, str]:
    """Give a case's id, and the id with the label in place of the implementation."""
    beginning, _, _ = row.case_id.rpartition(f"/{row.spec.implementation}/")
    return row.case_id, f"{beginning}/{row.spec.label}/seed{row.spec.seed}"
