"""The command ``spmark asv-import``: arguments and help; `spmark.suite.cli` lists it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def asv_import(
    records: Annotated[list[Path], typer.Argument(help="Folders of records, or folders that hold some.")],
    results: Annotated[Path, typer.Option(help="Folder of airspeed velocity's results.")] = Path(".asv/results"),
    commit: Annotated[str | None, typer.Option(help="What was measured, where the records do not say.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Write records into airspeed velocity's result files, by machine and commit; run it in the checkout.

    Example: [bold]spmark asv-import results/graphs_spmm[/bold]
    """
    from spmark.suite.commands.asv_import import import_into_asv

    import_into_asv(records, results, commit, as_json)
