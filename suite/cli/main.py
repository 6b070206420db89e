"""The command line ``spmark``: the program and its exit codes.

Commands stand in ``cli_*.py`` by purpose, with arguments and help; `spmark.suite.cli` holds their code. Nothing
heavy is imported before a command runs, so that ``spmark --help`` answers at once.
"""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer

from spmark.suite.cli import history_group as cli_history
from spmark.suite.cli import machine_group as cli_machine
from spmark.suite.cli import reports_group as cli_reports
from spmark.suite.cli import study as cli_models
from spmark.suite.cli import sweeps_group as cli_sweeps
from spmark.suite.cli.logs import log_to_screen
from spmark.suite.cli.options import EXIT_CODES, ExitCode

app = typer.Typer(
    name="spmark",
    help="Benchmarks of sparse GPU kernels (SpMM, SDDMM): run sweeps, check every result, draw the figures.\n\n"
    "Start with: [bold]spmark doctor[/bold], then [bold]spmark quickstart[/bold]; or, step by step, "
    "[bold]spmark run quickstart[/bold] and [bold]spmark report results/quickstart[/bold].",
    epilog=EXIT_CODES,
    rich_markup_mode="rich",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from spmark import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def root(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks and the log of the child.")] = False,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    """Set up logging for every command."""
    log_to_screen(logging.DEBUG if debug else logging.WARNING)


for group in (cli_machine, cli_sweeps, cli_reports, cli_history, cli_models):
    group.add_to(app)


def main() -> None:
    """Run the command line; the console's entry point."""
    sys.exit(_guarded())


def _guarded() -> int:
    """Run the command; an error of spmark or of a file is one message and an exit code."""
    try:
        app(prog_name="spmark")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader of standard output (head, less) has ended.
        sys.stderr.close()
        return ExitCode.OK
    except Exception as error:
        from spmark.impls.core.errors import SpmarkError

        of_a_file = isinstance(error, OSError) and error.filename is not None
        if not (of_a_file or isinstance(error, SpmarkError)) or logging.getLogger().isEnabledFor(logging.DEBUG):
            raise
        from spmark.suite.cli.console import complain

        complain(
            f"spmark: expected a file or a folder that can be used, found: {error}" if of_a_file else f"spmark: {error}"
        )
        return _exit_code(error)
    return ExitCode.OK


def _exit_code(error: Exception) -> int:
    from spmark.impls.core import errors

    if isinstance(error, errors.RecordError):
        return ExitCode.RECORDS
    if isinstance(error, errors.DeviceError | errors.BuildError | errors.KernelFault):
        return ExitCode.DEVICE
    return ExitCode.USAGE
