"""Commands that follow and repeat: ``compare``, ``spread``, ``provenance``, ``asv-run`` and ``asv-import``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spmark.suite.cli.options import EXIT_CODES, ExitCode, JsonOption

PANEL = "Follow and repeat"


def add_to(app: typer.Typer) -> None:
    """Add the commands of this file to the program."""
    app.command("compare", rich_help_panel=PANEL, epilog=EXIT_CODES)(compare)
    app.command("spread", rich_help_panel=PANEL)(spread)
    app.command("provenance", rich_help_panel=PANEL)(provenance)
    passed_on = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command("asv-run", rich_help_panel=PANEL, context_settings=passed_on)(asv_run)
    app.command("asv-import", rich_help_panel=PANEL)(asv_import)


def compare(
    before: Annotated[Path, typer.Argument(help="Records to compare with: a folder or a file.")],
    after: Annotated[Path, typer.Argument(help="Records that may have become slower.")],
    *,
    across: Annotated[
        bool, typer.Option("--across", help="Allow another GPU, driver or protocol: compares speed-ups only.")
    ] = False,
    threshold_from: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Records of repeated runs (A/A), or what spread --fit made of them."),
    ] = None,
    least: Annotated[float, typer.Option(min=0.0, help="Relative change below which nothing is flagged.")] = 0.02,
    every: Annotated[bool, typer.Option("--all", help="Show the cases that did not change as well.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare two sets of records case by case; exits with 1 if something became slower or lost its result.

    Differences are compared with those between runs of the same code, and corrected for the number of cases.

    [bold]spmark compare runs/before runs/after[/bold]
    """
    from spmark.suite.cli.compare import compare_records

    found = compare_records(
        before, after, across=across, threshold_from=threshold_from, least=least, every=every, as_json=as_json
    )
    raise typer.Exit(ExitCode.FAILURES if found else ExitCode.OK)


def spread(
    results: Annotated[list[Path], typer.Argument(help="Records of repeated runs: folders or files.")],
    fit: Annotated[
        Path | None, typer.Option(metavar="JSON", help="File that compare takes as spread between runs.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show how far repeated runs of the same code are from each other (A/A).

    Example: [bold]for n in 1 2 3; do spmark run smoke --out runs/$n; done; spmark spread runs[/bold]
    """
    from spmark.suite.cli.compare import show_spread

    show_spread(results, fit, as_json)


def provenance(
    records: Annotated[Path, typer.Argument(help="Records: a folder or a file.")], as_json: JsonOption = False
) -> None:
    """Print the commands that repeat records, and what cannot be repeated exactly.

    Example: [bold]spmark provenance results/graphs_spmm[/bold]
    """
    from spmark.suite.cli.provenance import show_provenance

    show_provenance(records, as_json)


def asv_run(context: typer.Context) -> None:
    """Run asv run under this machine's name; every option is one of asv run. Run it in the checkout.

    Benchmarks that cannot run on this machine are left out, and said in one line. Exits with 1 where asv run fails.

    Example: [bold]spmark asv-run --python=same --quick -b LiveConversions[/bold]
    """
    from spmark.suite.cli.asv_run import run_asv

    raise typer.Exit(ExitCode.FAILURES if run_asv(context.args) else ExitCode.OK)


def asv_import(
    records: Annotated[list[Path], typer.Argument(help="Folders of records, or folders that hold some.")],
    results: Annotated[Path, typer.Option(help="Folder of airspeed velocity's results.")] = Path(".asv/results"),
    commit: Annotated[str | None, typer.Option(help="What was measured, where the records do not say.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Write records into airspeed velocity's result files, by machine and commit; run it in the checkout.

    Example: [bold]spmark asv-import results/graphs_spmm[/bold]
    """
    from spmark.suite.cli.asv_import import import_into_asv

    import_into_asv(records, results, commit, as_json)
