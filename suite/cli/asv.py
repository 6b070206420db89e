"""The group ``asv``: airspeed velocity's ``run`` with this machine's name, and records as its results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spmark.suite.cli.options import ExitCode, JsonOption

app = typer.Typer(help="Follow speeds over commits with airspeed velocity.", no_args_is_help=True)


@app.command("run", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def asv_run(context: typer.Context) -> None:
    """Run asv run under this machine's name; every option is one of asv run. Run it in the checkout.

    Benchmarks that cannot run on this machine are left out, and said in one line. Exits with 1 where asv run fails.

    Example: [bold]spmark asv run --python=same --quick -b LiveConversions[/bold]
    """
    from spmark.suite.cli.asv_run import run_asv

    raise typer.Exit(ExitCode.FAILURES if run_asv(context.args) else ExitCode.OK)


@app.command("import")
def asv_import(
    records: Annotated[list[Path], typer.Argument(help="Folders of records, or folders that hold some.")],
    results: Annotated[Path, typer.Option(help="Folder of airspeed velocity's results.")] = Path(".asv/results"),
    commit: Annotated[str | None, typer.Option(help="What was measured, where the records do not say.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Write records into airspeed velocity's result files, by machine and commit; run it in the checkout.

    Example: [bold]spmark asv import results/graphs_spmm[/bold]
    """
    from spmark.suite.cli.asv_import import import_into_asv

    import_into_asv(records, results, commit, as_json)
