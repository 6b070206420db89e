"""The group ``asv``: airspeed velocity's ``run`` with this machine's name, and records as its results."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from spmark.impls.core.errors import DeviceError, SweepError, how_to_install
from spmark.suite.cli.console import answer, console, say, table
from spmark.suite.cli.options import ExitCode, JsonOption

_CONFIGURATION = "asv.conf.json"
app = typer.Typer(help="Follow speeds over commits with airspeed velocity.", no_args_is_help=True)


@app.command("run", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def asv_run(context: typer.Context) -> None:
    """Run asv run under this machine's name; every option is one of asv run. Run it in the checkout.

    Benchmarks that cannot run on this machine are left out, and said in one line. Exits with 1 where asv run fails.

    Example: [bold]spmark asv run --python=same --quick -b LiveConversions[/bold]
    """
    if not Path(_CONFIGURATION).is_file():
        raise SweepError(f"expected a checkout as working folder, found no {_CONFIGURATION} in {Path.cwd()}")
    if find_spec("asv") is None:
        raise DeviceError(f"expected airspeed velocity, found none: make install, or {how_to_install('asv')}")
    machine = []
    if not any(argument.startswith(("--machine", "-m")) for argument in context.args):
        from spmark.suite.asv.machine import register_here

        machine = [f"--machine={register_here()}"]
    done = subprocess.run([sys.executable, "-m", "asv", "run", *machine, *context.args], check=False)
    raise typer.Exit(ExitCode.FAILURES if done.returncode else ExitCode.OK)


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
    from spmark.suite.asv.importer import import_records
    from spmark.suite.benchmarks.tracked import PROTOCOL

    done = import_records(records, results, Path.cwd(), commit)
    screen = console(as_json)
    if as_json:
        answer([asdict(one) for one in done])
    else:
        # The machine is in the path, and a whole hash would break it.
        rows = [asdict(one) | {"file": one.file or f"none for {one.machine}"} for one in done]
        columns = ("file", "cases", "left_out", "other_protocol", "commit")
        rows = [{name: row[name] for name in columns} | {"commit": row["commit"][:12]} for row in rows]
        screen.print(table("Written for airspeed velocity", rows, plain=True))
    if others := sum(one.other_protocol for one in done):
        say(
            screen,
            f"{sum(one.cases for one in done)} cases imported; {others} cases not, since their records are of another "
            f"protocol than {PROTOCOL}, or of another flush or sparse library, than is followed here: measure "
            "those again",
        )
