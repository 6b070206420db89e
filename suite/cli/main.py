"""The command line ``spmark``: the program, its commands and its exit codes.

Commands stand by groups in the files of this folder. Nothing heavy is imported before a command runs, so that
``spmark --help`` answers at once.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from spmark.studies.table import CONTRACTS
from spmark.suite.cli import asv, machine, matrix, mirror, study, sweeps
from spmark.suite.cli.options import EXIT_CODES, ExitCode

RENAMED = {
    **{name: ["study", name] for name in ("label", "collect", "train", "replay", "spread")},
    "asv-run": ["asv", "run"],
    "asv-import": ["asv", "import"],
    "provenance": ["show"],
}
"""Today's words for commands of the version before."""


class _Commands(TyperGroup):
    """Runs a command by the name that it had in the version before, too, and says the new one."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command of the words after ``spmark``."""
        if (now := _renamed(*args)) is not None:
            words, args = now[0], [*now[0], *now[1]]
            typer.echo(f"spmark: this command is called spmark {' '.join(words)} now", err=True)
        return super().resolve_command(ctx, args)


def _renamed(name: str, *rest: str) -> tuple[list[str], list[str]] | None:
    """Give today's words for a command and the words that follow it; None where the command has its name of today."""
    if name in RENAMED:
        return RENAMED[name], [*rest]
    if name == "study" and rest and rest[0] in CONTRACTS["transfer"]:
        return ["study", "transfer"], [*rest]
    methods = {"--of": ""} | {f"--{method}": method for method in CONTRACTS["calibration"]}
    if name == "calibrate" and not methods.keys().isdisjoint(rest):
        return ["study", "calibrate"], [word for part in rest if (word := methods.get(part, part))]
    return None


app = typer.Typer(
    name="spmark",
    cls=_Commands,
    help="Benchmarks of sparse GPU kernels (SpMM, SDDMM): run sweeps, check every result, draw the figures.\n\n"
    "Start with: [bold]spmark doctor[/bold], then [bold]spmark quickstart[/bold]; or, step by step, "
    "[bold]spmark run quickstart[/bold] and [bold]spmark report results/quickstart[/bold].",
    epilog=EXIT_CODES,
    rich_markup_mode="rich",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Machine": (machine.doctor, machine.list_, machine.check, machine.calibrate),
    "Measure": (sweeps.quickstart, sweeps.fetch, sweeps.run, sweeps.reproduce),
    "Show": (sweeps.report, matrix.show, matrix.tune, matrix.explain, sweeps.compare),
}
_FAILING = (machine.check, sweeps.run, sweeps.reproduce, sweeps.compare)
"""Commands whose help has the exit codes."""
for panel, commands in _PANELS.items():
    for command in commands:
        epilog = EXIT_CODES if command in _FAILING else None
        app.command(command.__name__.rstrip("_"), rich_help_panel=panel, epilog=epilog)(command)
app.add_typer(asv.app, name="asv", rich_help_panel="Groups")
app.add_typer(mirror.app, name="mirror", rich_help_panel="Groups")
app.add_typer(study.app, name="study", rich_help_panel="Groups")


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


class Printable(logging.Formatter):
    """Spells control characters: warnings quote records that others made."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a message in letters that a terminal shows."""
        from spmark.impls.core.errors import printable

        return printable(super().format(record), "\n\t")


def log_to_screen(level: int) -> None:
    """Write messages and warnings of at least this level to standard error."""
    handler = logging.StreamHandler()
    handler.setLevel(level)  # a logger of a lower level may have a handler of its own
    handler.setFormatter(Printable("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
    logging.captureWarnings(True)  # libraries quote what they draw
    for noisy in ("matplotlib", "numba", "urllib3", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
