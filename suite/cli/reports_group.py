"""Commands that show: ``report``, ``show``, ``tune`` and ``explain``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spmark.suite.cli.completion import implementations, matrices
from spmark.suite.cli.options import DeviceName, DTypeName, ExitCode, JsonOption, OpName

PANEL = "Show"
MatrixArgument = Annotated[
    str,
    typer.Argument(help="source/name (@AT for the transpose), or a .mtx, .npz or .smtx file.", autocompletion=matrices),
]
ArgumentsOption = Annotated[
    list[str] | None, typer.Option("--arg", metavar="KEY=VALUE", help="Argument of the source. Repeatable.")
]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this file to the program."""
    app.command("report", rich_help_panel=PANEL)(report)
    app.command("show", rich_help_panel=PANEL)(show)
    app.command("tune", rich_help_panel=PANEL)(tune)
    app.command("explain", rich_help_panel=PANEL)(explain)


def report(
    results: Annotated[list[Path], typer.Argument(help="Folders of records, or folders that hold some.")],
    *,
    out: Annotated[Path, typer.Option(help="Folder for the site, its figures and tables.")] = Path("out/report"),
    baseline: Annotated[str | None, typer.Option(help="Implementation that speed-ups are over.")] = None,
    title: Annotated[str | None, typer.Option(help="Title of the first page.")] = None,
    paper: Annotated[
        str | None, typer.Option(metavar="NAME", help="Keep the sweeps and the claims of one paper.")
    ] = None,
    narrow: Annotated[
        bool, typer.Option("--narrow", help="Draw every figure for one column of a paper and for telephones, too.")
    ] = False,
    png: Annotated[bool, typer.Option("--png", help="Draw every figure as PNG, too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Draw records: a site that needs no network, with every failure and the papers' claims beside ours.

    The first page says which implementation is fastest for each matrix and J, and leads to a page for each sweep.
    Tables have filters, and charts say the numbers of each point.
    Figures come as SVG with their data as CSV, tables as CSV, Markdown and LaTeX.
    Into the folder of an earlier report, only sweeps are drawn of which something has changed.

    Example: [bold]spmark report results/quickstart --out out/quickstart[/bold]
    """
    from spmark.suite.cli.report import draw

    also = [form for form, asked in (("narrow", narrow), ("png", png)) if asked]
    draw(results, out, baseline=baseline, title=title, paper=paper, also=also, as_json=as_json)


def show(
    matrix: MatrixArgument,
    out: Annotated[Path, typer.Option(help="Folder for the page; it goes to OUT/MATRIX/.")] = Path("out/show"),
    arguments: ArgumentsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Describe a matrix: statistics, spy plot and how long its rows and columns are.

    Example: [bold]spmark show planetoid/cora[/bold]
    """
    from spmark.suite.cli.show import show_matrix

    show_matrix(matrix, arguments or (), out, as_json)


def tune(
    matrix: MatrixArgument,
    *,
    width: Annotated[int, typer.Option(min=1, max=2**31 - 1, help="J, columns of the dense operand.")],
    op: Annotated[OpName, typer.Option(help="The operator.")] = OpName.SPMM,
    dtype: Annotated[DTypeName, typer.Option(help="Type of operands and result.")] = DTypeName.FLOAT32,
    foreseen: Annotated[
        str | None,
        typer.Option("--for", metavar="DEVICE", help="Measure nothing: search and predict for a device that ships."),
    ] = None,
    device: Annotated[
        DeviceName,
        typer.Option(help="auto: GPU 0, and without one nothing is measured. cpu: this machine's processor."),
    ] = DeviceName.AUTO,
    budget: Annotated[str, typer.Option(metavar="TIME", help="When to stop: 30s, 5m, 1h.")] = "2m",
    use: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="An implementation, or a class in a file ([bold]./mine.py:MyKernel[/bold]); default: all. Repeatable.",
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
    """Find what serves one matrix best: a ranking, and a page that shows what serves which non-zeros.

    With a GPU, or with [bold]--device cpu[/bold], implementations are checked and measured.
    Otherwise, or with [bold]--for[/bold], searches and cost models say what they would choose for an H200.
    What was not run is labelled "not measured".

    [bold]spmark tune mine.mtx --width 64[/bold]

    [bold]spmark tune planetoid/cora --width 128 --for nvidia-h200 --use stile --use liteform[/bold]
    """
    from spmark.impls.core.problem import DType
    from spmark.impls.table import name_of
    from spmark.suite.cli.tune import TuneJob, tune, without_gpu
    from spmark.suite.plan.papers import seconds

    target = without_gpu(device.value, foreseen)
    job = TuneJob(
        matrix, tuple(arguments or ()), op.value, width, DType(dtype.value), device.value, target, seconds(budget),
        tuple(name_of(written) for written in use or ()),
    )  # fmt: skip
    if tune(job, out, as_json):
        raise typer.Exit(ExitCode.INTERRUPTED)


def explain(
    record: Annotated[str, typer.Argument(help="A recorded case's id, or a part of it that no other case has.")],
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
    from spmark.suite.cli.explain import explain_case

    explain_case(record, results or [Path("results")], out, as_json)
