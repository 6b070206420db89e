"""Commands that show: ``report`` and ``show``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spmark.suite.cli_options import JsonOption
from spmark.suite.completion import matrices

PANEL = "Show"


def add_to(app: typer.Typer) -> None:
    """Add the commands of this file to the program."""
    app.command("report", rich_help_panel=PANEL)(report)
    app.command("show", rich_help_panel=PANEL)(show)


def report(
    results: Annotated[list[Path], typer.Argument(help="Folders of records, or folders that hold some.")],
    *,
    out: Annotated[Path, typer.Option(help="Folder for the site, its figures and tables.")] = Path("out/report"),
    baseline: Annotated[str | None, typer.Option(help="Implementation that speed-ups are over.")] = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    paper: Annotated[
        str | None, typer.Option(metavar="NAME", help="Keep the sweeps and the claims of one paper.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Draw records: a self-contained site with figures, tables, every failure and the papers' claims beside ours.

    Figures come as SVG and PNG with their data as CSV, tables as CSV, Markdown and LaTeX.

    Example: [bold]spmark report results/quickstart --out out/quickstart[/bold]
    """
    from spmark.suite.commands.report import draw

    draw(results, out, baseline=baseline, title=title, paper=paper, as_json=as_json)


def show(
    matrix: Annotated[
        str,
        typer.Argument(
            help="source/name (@AT for the transpose), or a .mtx, .npz or .smtx file.", autocompletion=matrices
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the page; it goes to OUT/MATRIX/.")] = Path("out/show"),
    arguments: Annotated[
        list[str] | None, typer.Option("--arg", metavar="KEY=VALUE", help="Argument of the source. Repeatable.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Describe a matrix: statistics, spy plot and how long its rows and columns are.

    Example: [bold]spmark show planetoid/cora[/bold]
    """
    from spmark.suite.commands.show import show_matrix

    show_matrix(matrix, arguments or (), out, as_json)
