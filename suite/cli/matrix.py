"""Commands about one matrix: ``show`` describes it, ``tune`` finds what serves it best, ``explain`` draws a record."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from spmark.impls.core.baseline import BASELINES
from spmark.impls.core.enums import DeviceKind, DeviceName, DType, Status, SweepOp
from spmark.impls.core.errors import (
    BuildError,
    DatasetError,
    DeviceError,
    RecordError,
    SpmarkError,
    SweepError,
    printable,
)
from spmark.impls.core.files import path_component
from spmark.impls.table import forecasters, implementation_names, name_of
from spmark.suite.cli.console import answer, console, finite, say, table, working
from spmark.suite.cli.options import ExitCode, JsonOption, implementations, matrices

if TYPE_CHECKING:
    from rich.console import Console

    from spmark.datasets.sweep.model import MatrixSpec, Sweep
    from spmark.impls.core.devicespec import DeviceSpec
    from spmark.impls.core.problem import Problem
    from spmark.impls.core.stores import Stores
    from spmark.records.schema import CaseSpec, Measurement
    from spmark.suite.run.execute import Summary
    from spmark.suite.tuned import Tuned

FORESEEN = "nvidia-h200"
"""The device that is searched for where the machine has no GPU and none is named."""
LEAST_BUDGET_S = 1.0
_SHOWN = 5
"""Cases that a message names."""
_MODELS = (
    "Nothing was measured: each time is what the implementation's own cost model predicts, and at least what any run "
    "takes. Times of different models say little about each other."
)
MatrixArgument = Annotated[
    str,
    typer.Argument(help="source/name (@AT for the transpose), or a .mtx, .npz or .smtx file.", autocompletion=matrices),
]
ArgumentsOption = Annotated[
    list[str] | None, typer.Option("--arg", metavar="KEY=VALUE", help="Argument of the source. Repeatable.")
]


def show(
    matrix: Annotated[
        str,
        typer.Argument(
            metavar="MATRIX|RECORDS",
            help="source/name (@AT for the transpose), or a .mtx, .npz or .smtx file; or records: a folder or a file.",
            autocompletion=matrices,
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the page; it goes to OUT/MATRIX/.")] = Path("out/show"),
    arguments: ArgumentsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Describe a matrix: statistics, spy plot and how long its rows and columns are; or say how to repeat records.

    Of records, this prints the commands that made them, and what cannot be repeated exactly.

    [bold]spmark show planetoid/cora[/bold]

    [bold]spmark show results/graphs_spmm[/bold]
    """
    if Path(matrix).is_dir() or ".jsonl" in Path(matrix).suffixes:
        from spmark.suite.cli.report import show_provenance

        show_provenance(Path(matrix), as_json)
        return
    from spmark.datasets.loading_child import load_in_child
    from spmark.datasets.statistics import statistics
    from spmark.report.site.composition import matrix_report
    from spmark.report.site.files import write_site

    screen, spec = console(as_json), matrix_spec(matrix, arguments or ())
    with working(screen, spec.id):
        loaded = load_in_child(spec, seed=0)
        known: dict[str, Any] = {"kind": str(loaded.source_kind), **asdict(statistics(loaded.csr))}
        facts = [(name.replace("_", " "), _text(value)) for name, value in known.items() if value is not None]
        page = write_site(matrix_report(spec.id, facts, loaded.csr), out / _file_name(spec.id))
    if as_json:
        answer({"matrix": spec.id, "statistics": known, "page": page})
        return
    screen.print(table(spec.id, [{"statistic": name, "value": text} for name, text in facts], plain=True))
    say(screen, escape(str(page)))


def matrix_spec(matrix: str, arguments: Sequence[str]) -> MatrixSpec:
    """Give the entry of a sweep for a matrix that is written in a word (`spmark.datasets.sweep.reading`).

    Raises
    ------
    DatasetError
        The word is neither a file nor a matrix of a source, or the source does not exist; the message says what there
        is.
    """
    from pydantic import ValidationError

    from spmark.datasets.sweep.model import MatrixSpec
    from spmark.datasets.sweep.reading import parse_matrix

    said = parse_matrix(matrix)
    try:
        return MatrixSpec.model_validate(said | {"args": dict(map(_argument, arguments))})
    except ValidationError as error:
        raise DatasetError(f"{matrix}: {error.errors()[0]['msg']}") from error


def _argument(text: str) -> tuple[str, Any]:
    from spmark.impls.core.plainyaml import parse_yaml

    key, equals, value = text.partition("=")
    if not key or not equals:
        raise DatasetError(f"expected an argument as key=value, found {text!r}")
    return key, parse_yaml(value, f"argument {text!r}: the value after '='", DatasetError)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _file_name(words: str) -> str:
    """Give the name of a file for an id with strokes."""
    return path_component("-".join(filter(None, words.split("/"))))


def tune(
    matrix: MatrixArgument,
    *,
    width: Annotated[int, typer.Option(min=1, max=2**31 - 1, help="J, columns of the dense operand.")],
    op: Annotated[SweepOp, typer.Option(help="The operator.")] = "spmm",
    dtype: Annotated[DType, typer.Option(help="Type of operands and result.")] = DType.FLOAT32,
    foreseen: Annotated[
        str | None,
        typer.Option("--for", metavar="DEVICE", help="Measure nothing: search and predict for a device that ships."),
    ] = None,
    device: Annotated[
        DeviceName,
        typer.Option(help="auto: GPU 0, and without one nothing is measured. cpu: this machine's processor."),
    ] = "auto",
    budget: Annotated[str, typer.Option(metavar="TIME", help="When to stop: 30s, 5m, 1h.")] = "2m",
    use: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="An implementation, or a file ([bold]./mine.py:MyKernel[/bold], [bold]./mine.cu[/bold]); default: "
            "all. Repeatable.",
            autocompletion=implementations,
        ),
    ] = None,
    arguments: ArgumentsOption = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="PAGE.html", help="The page; by default out/tune/MATRIX-OP-JWIDTH-DTYPE-DEVICE.html."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say which implementation to take for one matrix and what it costs; a page shows what serves which non-zeros.

    With a GPU, or with [bold]--device cpu[/bold], implementations are checked and measured.
    Otherwise, or with [bold]--for[/bold], searches and cost models say what they would choose for an H200.
    What was not run is labelled "not measured".

    [bold]spmark tune mine.mtx --width 64[/bold]

    [bold]spmark tune planetoid/cora --width 128 --for nvidia-h200 --use stile --use liteform[/bold]
    """
    from spmark.suite.plan.papers import seconds
    from spmark.suite.plan.refusals import refusal
    from spmark.suite.tuned import foresee, measured, ranked, roof, sweep_of

    if (budget_s := seconds(budget)) < LEAST_BUDGET_S:
        raise SweepError(f"--budget: expected at least {LEAST_BUDGET_S:g}s, found {budget_s:g}s")
    names = [name_of(written) for written in use or ()]
    screen, spec = console(as_json), matrix_spec(matrix, arguments or ())
    target, absent = _target(device, foreseen)
    with working(screen, spec.id):
        problem = _problem(spec, op, width, dtype)
    what = f"{op} with {spec.id}, J = {width}, {dtype}"
    title = f"{what}, {'foreseen for' if absent else 'measured on'} {target.name}"
    summary = None
    if absent:
        with working(screen, f"searching for {target.name}"):
            found = list(foresee(names or forecasters(), problem, target, budget_s))
    else:
        names = names or [one for one in implementation_names() if not refusal(one, {}, target.kind, problem.op)]
        sweep = sweep_of(spec, op, width, dtype, names, target.kind, budget_s)
        summary = _measure(sweep, target, budget_s, screen)
        found = measured(summary.rows, target)
    best, beside = ranked(found), [roof(problem, target)] if absent else []
    if best:
        say(screen, f"[bold]{escape(_advice(best, target.kind, *beside))}[/bold]")
    busy = 0
    if summary is not None:
        busy = _tell_doubts(summary, budget_s, screen)
        best = _with_stores(best, summary.rows, problem, target, screen)
    left = {one.name: one.reason for one in found if one.config is None}
    if rows := [_cells(one) for one in (*best, *beside)]:
        screen.print(table(title, rows, plain=True))
    if left:
        reasons = [{"implementation": name, "reason": reason.splitlines()[0]} for name, reason in left.items()]
        screen.print(table("Without a result", reasons, plain=True))
    interrupted = summary is not None and summary.interrupted
    if not best and not interrupted:
        raise SweepError(f"{what}: expected an implementation that gives a plan, found none; see the reasons above")
    if best:
        file = f"{_file_name(spec.id)}-{op}-J{width}-{dtype}-{path_component(target.name)}.html"
        out = out or Path("out/tune") / file
        page = write_composition_page(what, problem, target, [*best, *beside], out, foreseen=absent)
        if as_json:
            asked = {"matrix": spec.id, "op": op, "width": width, "dtype": dtype, "device": target.name}
            told = {"ranking": [_told(one) for one in best], "beside": [_told(one) for one in beside], "left_out": left}
            answer(asked | {"measured": not absent, "busy": busy} | told | {"page": page})
        else:
            say(screen, f"[yellow]{_MODELS}[/yellow]\n{escape(str(page))}" if absent else escape(str(page)))
    raise typer.Exit(ExitCode.INTERRUPTED if interrupted else ExitCode.OK)


def _problem(spec: MatrixSpec, op: SweepOp, width: int, dtype: DType) -> Problem:
    from spmark.datasets.loading_child import load_in_child
    from spmark.datasets.sweep.model import operator_of
    from spmark.impls.core.problem import Problem

    kind, scaled = operator_of(op)
    return Problem(kind, load_in_child(spec, seed=0).csr, width, dtype, scaled)


def _target(device: str, foreseen: str | None) -> tuple[DeviceSpec, bool]:
    """Give the device to measure on, or the one to foresee: `FORESEEN` where there is no GPU and nothing is asked for.

    Raises
    ------
    SweepError
        A device of this machine and one to foresee are both asked for.
    DeviceError
        The device is missing, its rates do not ship, or its times mean nothing.
    """
    from spmark.impls.runtime.device import calibrated, cuda_missing, find, shipped

    if foreseen is not None and device != "auto":
        raise SweepError(f"expected --for or --device, found both: --for {foreseen} measures nothing on {device}")
    if foreseen is not None or (device == "auto" and cuda_missing()):
        return shipped(foreseen or FORESEEN), True
    found = find(device)
    if found.kind is DeviceKind.HOST_SIMT:
        raise DeviceError("--device: expected one whose times mean something, cuda or cpu, found host-simt")
    return calibrated(found), False


def _measure(sweep: Sweep, device: DeviceSpec, budget_s: float, screen: Console) -> Summary:
    """Run the sweep into a folder that is thrown away, and show what is measured meanwhile."""
    from rich.text import Text

    from spmark.suite.run.execute import Watcher, execute

    class Now(Watcher):
        def entered(self, case: CaseSpec, phase: str) -> None:
            status.update(Text(printable(f"{case.label}: {phase}")))

    with tempfile.TemporaryDirectory() as folder, working(screen, sweep.name) as status:
        return execute(sweep, device, out=folder, watcher=Now(), until=time.monotonic() + budget_s)


def _advice(best: Sequence[Tuned], kind: DeviceKind, estimate: Tuned | None = None) -> str:
    """Say which implementation to take and what it costs; with the baseline's estimate where nothing was measured."""
    from spmark.suite.tuned import label_of

    first = best[0]
    if estimate is not None:
        known = f"about {first.time_us:.3g} µs a run, an estimate that was not measured,"
        told = (
            f"Take {first.name}: {'no model predicts its time,' if math.isnan(first.time_us) else known} and "
            f"{_seconds(first.search_s)} of search here; {estimate.name}, the baseline, takes "
            f"{estimate.time_us:.3g} µs or more by the roof"
        )
        return f"{told}." if first.time_us < estimate.time_us else f"{told}, and only measuring tells which is faster."
    told = f"Take {first.name}: {_time(first)} a run"
    for one in best[1:]:
        if one.name == BASELINES[kind]:
            told += f", {one.time_us / first.time_us:.3g} times as fast as {one.name} ({_time(one)})"
    told += f"; {_seconds(first.search_s)} from the matrix to its plan"
    if 0 < first.break_even_runs < math.inf:
        told += f", which {first.break_even_runs:,.0f} runs pay back against {label_of(kind)}"
    alike = [one.name for one in best[1:] if one.low_us <= first.high_us]
    return f"{told}." + (f" As fast within the intervals: {', '.join(alike)}." if alike else "")


def _tell_doubts(summary: Summary, budget_s: float, screen: Console) -> int:
    """Say what was not measured, and what a busy machine measured; gives the number of such cases."""
    from spmark.impls.core.machine import Load
    from spmark.suite.cli.progress import tell_load

    if summary.left:
        why = "the run was interrupted" if summary.interrupted else f"the budget is {budget_s:g} s"
        say(screen, f"{summary.left} cases were not measured: {why}")
    loads = [Load(summary.cores, row.free_cores) for row in summary.rows]
    tell_load(screen, loads, "measure again when it is not")
    return sum(load.busy for load in loads)


def _with_stores(
    best: Sequence[Tuned], rows: Sequence[Measurement], problem: Problem, device: DeviceSpec, screen: Console
) -> list[Tuned]:
    """Add the stores of the first in the ranking, as many as may be drawn."""
    from spmark.report.site.composition import MOST_PICTURES
    from spmark.suite.tuned import recorded_stores

    records, known = {row.spec.label: row for row in rows}, list(best)
    for at, one in enumerate(best[: 2 * MOST_PICTURES]):
        try:
            known[at] = replace(one, stores=recorded_stores(records[one.name], problem, device))
        except (SpmarkError, MemoryError) as error:
            say(screen, f"[yellow]{escape(one.name)} is not drawn: {escape(str(error))}[/yellow]")
    return known


def _cells(one: Tuned) -> dict[str, str]:
    from spmark.report.tables.table import cell, heading

    row = one.row
    return {
        heading(name): cell(name, value, row.get(f"{name}_low"), row.get(f"{name}_high"))
        if isinstance(value, float)
        else str(value)
        for name, value in row.items()
        if not name.endswith(("_low", "_high"))
    }


def _time(one: Tuned) -> str:
    from spmark.report.tables.table import cell

    return f"{cell('time_us', one.time_us, one.low_us, one.high_us)} µs"


def _seconds(seconds: float) -> str:
    return f"{seconds * 1e3:.2g} ms" if seconds < 0.1 else f"{seconds:.2g} s"


def _told(one: Tuned) -> dict[str, Any]:
    """Give a line of the answer in JSON: unknown numbers are null."""
    stores = None if one.stores is None else [asdict(part) for part in one.stores.parts]
    return {**finite(one.row), "config": one.config, "stores": stores}


def write_composition_page(
    title: str,
    problem: Problem,
    device: DeviceSpec,
    best: Sequence[Tuned],
    out: Path,
    *,
    foreseen: bool = False,
    notices: Sequence[str] = (),
) -> Path:
    """Write the page of one problem.

    Parameters
    ----------
    title : str
    problem : Problem
    device : DeviceSpec
    best : sequence of Tuned
        The ranking; those with stores are drawn.
    out : Path
        The page.
    foreseen : bool
        Times are of cost models, which the page says.
    notices : sequence of str
        What a reader must know before believing a number.

    Raises
    ------
    RecordError
        ``out`` cannot be written.
    """
    import pandas as pd

    from spmark.report.site.composition import Picture, composition_report
    from spmark.report.site.files import write_page
    from spmark.report.site.model import Section

    matrix = problem.matrix
    facts = [
        ("A", f"{matrix.num_rows:,} x {matrix.num_cols:,}, {matrix.nnz:,} non-zeros"),
        ("operator", f"{problem.op}, J = {problem.width:,}, {problem.dtype}"),
    ]
    times = {one.name: "" if math.isnan(one.time_us) else f"{_time(one)}, " for one in best}
    report = composition_report(
        title,
        Section(device.name, "", facts, [_MODELS] * foreseen + [*notices], []),
        pd.DataFrame([one.row for one in best]),
        [Picture(one.name, one.stores, f"{times[one.name]}{one.about}.") for one in best if one.stores is not None],
        matrix,
        foreseen=foreseen,
    )
    return write_page(report, out)


def explain(
    record: Annotated[
        str,
        typer.Argument(help="A recorded case's id, or a part of it that no other case has; a label may be the name."),
    ],
    *,
    results: Annotated[
        list[Path] | None, typer.Option(help="Folder of records; by default results. Repeatable.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="PAGE.html", help="The page; by default out/explain/CASE.html.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what served which non-zeros in a recorded case: the matrix and the plan's formats are made again, no GPU.

    Example: [bold]spmark explain spmm/patterns/band_4096/J64/float32/scipy_cpu/seed0 --results out/quickstart[/bold]
    """
    from spmark.suite.tuned import measured

    row, problem, device, stores = laid_out(record, results or [Path("results")])
    (told,) = measured([row], device)
    notices = []
    if stores.stored != row.stored:
        notices.append(
            f"The recorded plan stored {row.stored:,} elements, and today's code stores {stores.stored:,}: the picture "
            "shows what today's code does."
        )
    out = out or Path("out/explain") / f"{_file_name(row.case_id)}.html"
    name = _names(row)[1]
    page = write_composition_page(name, problem, device, [replace(told, stores=stores)], out, notices=notices)
    parts = [asdict(part) for part in stores.parts]
    if as_json:
        answer({"case": row.case_id, "config": row.config, "stores": parts, "notices": notices, "page": page})
        return
    screen = console(as_json)
    screen.print(table(name, parts, plain=True))
    for notice in notices:
        say(screen, f"[yellow]{escape(notice)}[/yellow]")
    say(screen, escape(str(page)))


def laid_out(record: str, results: Sequence[Path]) -> tuple[Measurement, Problem, DeviceSpec, Stores]:
    """Find a recorded case, and lay its plan out again on the host.

    Raises
    ------
    RecordError
        No case, or several, have ``record`` in their ids, or the case's matrix is another one today.
    SpmarkError
        The matrix cannot be loaded, or the recorded plan cannot be laid out again.
    """
    from spmark.datasets.loading_child import load_in_child
    from spmark.impls.core.problem import Problem
    from spmark.impls.core.untrusted import reading
    from spmark.suite.tuned import recorded_stores

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
        return row, problem, device, recorded_stores(row, problem, device)


def find_record(record: str, results: Sequence[Path]) -> tuple[Measurement, DeviceSpec]:
    """Find a case that has a plan by its id or a part of it; of several records of one case, the last.

    A label may stand in place of the implementation, since a variant's id ends in digits that nobody knows by heart.
    Whole words between strokes come before parts of words: ``/stile/`` is not ``/stile_mixture/``.

    Raises
    ------
    RecordError
        No case or several have it, or the record's device is not known here.
    """
    from spmark.impls.runtime.device import shipped
    from spmark.suite.run.provenance import read_batches

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
