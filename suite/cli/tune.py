"""``spmark tune``: what serves one matrix best, as a live ranking and a page with the compositions."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.markup import escape

from spmark.impls.core.baseline import BASELINES
from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import DeviceError, SpmarkError, SweepError
from spmark.impls.core.load import Load
from spmark.impls.core.problem import DType, Problem
from spmark.impls.runtime.load import LoadMeter
from spmark.impls.table import FORECASTS, implementation_names
from spmark.suite.cli.console import answer, console, say, table, working
from spmark.suite.cli.progress import tell_load, warn_of_load
from spmark.suite.cli.show import matrix_spec
from spmark.suite.plan.refusals import refusal
from spmark.suite.tuned import Tuned, foresee, least_us, measured, ranked, stores_of, sweep_of

if TYPE_CHECKING:
    from spmark.datasets.sweep.model import MatrixSpec, SweepOp
    from spmark.impls.core.record import Measurement

FORESEEN = "nvidia-h200"
"""The device that is searched for where the machine has no GPU and none is named."""
LEAST_BUDGET_S = 1.0
Show = Callable[[Sequence[Tuned]], None]
"""Takes what is known so far, and draws it."""
_MODELS = (
    "Nothing was measured: each time is what the implementation's own cost model predicts, and at least what any run "
    "takes. Times of different models say little about each other."
)


@dataclass(frozen=True)
class TuneJob:
    """What the command line asked for."""

    matrix: str
    arguments: Sequence[str]
    op: SweepOp
    width: int
    dtype: DType
    device: str
    """As `spmark.impls.runtime.device.find` takes it."""
    foreseen: str | None
    """Name of a device that ships, in place of a device of this machine."""
    budget_s: float
    use: Sequence[str]
    """Implementations; empty for all."""


def tune(job: TuneJob, out: Path | None, as_json: bool) -> bool:
    """Rank, say it and write the page; tells whether the user interrupted, so that cases are left out.

    Raises
    ------
    SpmarkError
        The matrix, the device, an implementation or the budget cannot be used; the message says why.
    """
    if job.budget_s < LEAST_BUDGET_S:
        raise SweepError(f"--budget: expected at least {LEAST_BUDGET_S:g}s, found {job.budget_s:g}s")
    from spmark.datasets.loading_child import load_in_child
    from spmark.datasets.sweep.model import operator_of
    from spmark.impls.core.names import path_component
    from spmark.impls.core.operators import flops

    screen = console(as_json)
    spec, device = matrix_spec(job.matrix, job.arguments), _device(job)
    with working(screen, spec.id):
        op, scaled = operator_of(job.op)
        problem = Problem(op, load_in_child(spec, seed=0).csr, job.width, job.dtype, scaled)
    what = f"{job.op} with {spec.id}, J = {job.width}, {job.dtype}"
    say(screen, f"[bold]{escape(what)}[/bold] for {escape(device.name)}, {flops(problem) / 1e9:,.3g} GFLOP a run")
    absent = device.kind is DeviceKind.CUDA and job.foreseen is not None
    title = f"Foreseen for {device.name}, not measured" if absent else f"Measured on {device.name}"
    with _live(screen, title) as show:
        if absent:
            found, interrupted = _foreseen(job, problem, device, show), False
        else:
            found, interrupted = _run(job, spec, problem, device, screen, show)
    best = ranked(found)
    if best:
        say(screen, f"[bold]{escape(_advice(best[0], problem, device, foreseen=absent))}[/bold]")
        screen.print(table(title, [_cells(one) for one in best], plain=True))
    left = {one.name: one.reason for one in found if one.config is None}
    if left:
        rows = [{"implementation": name, "reason": reason.splitlines()[0]} for name, reason in left.items()]
        screen.print(table("Without a result", rows, plain=True))
    if not best and interrupted:
        return True
    if not best:
        raise SweepError(f"{what}: expected an implementation that gives a plan, found none; see the reasons above")
    name = path_component("-".join(filter(None, spec.id.split("/"))))
    what_for = f"{job.op}-J{job.width}-{job.dtype}-{path_component(device.name)}"
    out = out or Path("out/tune") / f"{name}-{what_for}.html"
    page = write_composition_page(what, problem, device, best, out, foreseen=absent)
    if as_json:
        answer(
            {
                "matrix": spec.id, "op": job.op, "width": job.width, "dtype": job.dtype, "device": device.name,
                "measured": not absent, "ranking": [_told(one) for one in best], "left_out": left, "page": page,
            }
        )  # fmt: skip
    else:
        if absent:
            say(screen, f"[yellow]{_MODELS}[/yellow]")
        say(screen, escape(str(page)))
    return interrupted


def _device(job: TuneJob) -> DeviceSpec:
    """Give the device that is measured on, or the one that is searched for."""
    from spmark.impls.runtime.device import calibrated, find, shipped

    if job.foreseen is not None:
        return shipped(job.foreseen)
    device = find(job.device)
    if device.kind is DeviceKind.HOST_SIMT:
        raise DeviceError("--device: expected one whose times mean something, cuda or cpu, found host-simt")
    return calibrated(device)


def without_gpu(device: str, foreseen: str | None) -> str | None:
    """Give the name of the device to foresee: the one that was asked for, or `FORESEEN` where there is no GPU.

    Parameters
    ----------
    device : str
        As `spmark.impls.runtime.device.find` takes it; ``auto`` wants a GPU.
    foreseen : str or None
        What was asked for.

    Raises
    ------
    SweepError
        A device of this machine and one to foresee are both asked for.
    """
    from spmark.impls.runtime.device import cuda_missing

    if foreseen is not None and device != "auto":
        raise SweepError(f"expected --for or --device, found both: --for {foreseen} measures nothing on {device}")
    return FORESEEN if foreseen is None and device == "auto" and cuda_missing() else foreseen


@contextmanager
def _live(screen: Console, title: str) -> Iterator[Show]:
    """Draw a ranking anew as results come in, until the body ends."""
    with Live(console=screen, refresh_per_second=4, transient=True) as live:
        yield lambda found: live.update(table(title, [_cells(one) for one in ranked(found)], plain=True))


def _cells(one: Tuned) -> dict[str, str]:
    from spmark.report.tables.cells import cell, heading

    row = one.row
    return {
        heading(name): cell(name, value, row.get(f"{name}_low"), row.get(f"{name}_high"))
        if isinstance(value, float)
        else str(value)
        for name, value in row.items()
        if not name.endswith(("_low", "_high"))
    }


def _advice(first: Tuned, problem: Problem, device: DeviceSpec, *, foreseen: bool) -> str:
    """Say which implementation to take, what it costs, and what of that is an estimate."""
    search = f"{first.search_s:.2g} s"
    if not foreseen:
        return f"Take {first.name}: {_time(first)}{search} from the matrix to its plan."
    time = "no model predicts its time" if math.isnan(first.time_us) else f"about {first.time_us:.3g} µs a run"
    return (
        f"Take {first.name}: {time}, an estimate that was not measured, and {search} of search here. No run takes less "
        f"than {least_us(problem, device):.3g} µs, nor does {BASELINES[device.kind.value]}, the baseline."
    )


def _foreseen(job: TuneJob, problem: Problem, device: DeviceSpec, show: Show) -> list[Tuned]:
    found: list[Tuned] = []
    for one in foresee(job.use or FORECASTS, problem, device, job.budget_s):
        found.append(one)
        show(found)
    return found


def _run(  # noqa: PLR0917
    job: TuneJob, spec: MatrixSpec, problem: Problem, device: DeviceSpec, screen: Console, show: Show
) -> tuple[list[Tuned], bool]:
    """Measure, and tell whether the user interrupted; stores of the first in the ranking are added, as drawn."""
    from spmark.report.site.composition import MOST_PICTURES
    from spmark.suite.run.execute import Watcher, execute

    names = job.use or [one for one in implementation_names() if refusal(one, {}, device.kind, problem.op) is None]
    sweep = sweep_of(spec, job.op, job.width, job.dtype, names, device.kind, job.budget_s)
    rows: list[Measurement] = []

    class Ranking(Watcher):
        def recorded(self, row: Measurement) -> None:
            rows.append(row)
            show(measured(rows, device))

    warn_of_load(screen, LoadMeter())
    with tempfile.TemporaryDirectory() as folder:
        summary = execute(sweep, device, out=folder, watcher=Ranking(), until=time.monotonic() + job.budget_s)
    if summary.left:
        why = "the run was interrupted" if summary.interrupted else f"the budget is {job.budget_s:g} s"
        say(screen, f"{summary.left} cases were not measured: {why}")
    tell_load(screen, [Load(summary.cores, row.free_cores) for row in rows], "measure again when it is not")
    found = measured(rows, device)
    first = {one.name for one in ranked(found)[: 2 * MOST_PICTURES]}
    drawn = [
        _with_stores(one, row, problem, device, screen) if one.name in first else one
        for one, row in zip(found, rows, strict=True)
    ]
    return drawn, summary.interrupted


def _with_stores(one: Tuned, row: Measurement, problem: Problem, device: DeviceSpec, screen: Console) -> Tuned:
    try:
        return replace(one, stores=stores_of(row, problem, device))
    except (SpmarkError, MemoryError) as error:
        say(screen, f"[yellow]{escape(one.name)} is not drawn: {escape(str(error))}[/yellow]")
        return one


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

    from spmark.report.site.composition import DrawnMatrix, Picture, composition_report
    from spmark.report.site.files import write_page
    from spmark.report.site.model import Section

    matrix = problem.matrix
    facts = [
        ("A", f"{matrix.num_rows:,} x {matrix.num_cols:,}, {matrix.nnz:,} non-zeros"),
        ("operator", f"{problem.op}, J = {problem.width:,}, {problem.dtype}"),
    ]
    pictures = [Picture(one.name, one.stores, f"{_time(one)}{one.about}.") for one in best if one.stores is not None]
    report = composition_report(
        title,
        Section(device.name, "", facts, [_MODELS] * foreseen + [*notices], []),
        pd.DataFrame([one.row for one in best]),
        pictures,
        DrawnMatrix(matrix.shape, matrix.indptr, matrix.indices),
        foreseen=foreseen,
    )
    return write_page(report, out)


def _time(one: Tuned) -> str:
    from spmark.report.tables.cells import cell

    return "" if math.isnan(one.time_us) else f"{cell('time_us', one.time_us, one.low_us, one.high_us)} µs, "


def _told(one: Tuned) -> dict[str, Any]:
    """Give a line of the answer in JSON: unknown numbers are null."""
    unknown = {name for name, value in one.row.items() if isinstance(value, float) and not math.isfinite(value)}
    row = {name: None if name in unknown else value for name, value in one.row.items()}
    stores = None if one.stores is None else [asdict(part) for part in one.stores.parts]
    return row | {"config": one.config, "stores": stores}
