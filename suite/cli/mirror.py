"""The group ``mirror``: folders of matrices for machines without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spmark.suite.cli import options
from spmark.suite.cli.options import ExitCode

app = typer.Typer(help="Folders of matrices for machines without a network, and for containers.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keep ``make`` a word of its own, although it is the only command."""


@app.command("make")
def make(
    folder: Annotated[Path, typer.Argument(help="Is made, or completed.")],
    sweeps: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SWEEP]...", help="All packaged ones by default.", autocompletion=options.sweeps),
    ] = None,
) -> None:
    """Write the downloaded matrices of sweeps into a folder; the same command goes on where it stopped.

    SPMARK_MIRROR names the folder on another machine, which then needs no network. Exits with 2 where a matrix could
    not be had.

    Example: [bold]spmark mirror make data/mirror graphs_spmm judging_graphs[/bold]
    """
    from spmark.suite.cli.fetch import make_mirror

    raise typer.Exit(ExitCode.USAGE if make_mirror(folder, sweeps or ()) else ExitCode.OK)
