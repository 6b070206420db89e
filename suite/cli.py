"""The command line ``spmark``: arguments, help and exit codes; what a command does stands in `spmark.suite.commands`.

Nothing heavy is imported before a command runs, so that ``spmark --help`` answers at once.
"""

from __future__ import annotations

import logging
import sys
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Annotated

import typer

from spmark.suite.cli_asv import asv_import

EXIT_CODES = (
    "Exit codes: 0 done; 1 a case failed (run --strict), something that a CPU run needs is missing (doctor), "
    "or a regression (compare); "
    "2 wrong usage, sweep or input; 3 the device, or a paper that cannot run yet (reproduce); 4 records or disk; "
    "130 interrupted (the same command goes on)."
)

app = typer.Typer(
    name="spmark",
    help="Benchmarks of sparse GPU kernels (SpMM, SDDMM): run sweeps, check every result, draw the figures.\n\n"
    "Start with: [bold]spmark doctor[/bold], then [bold]spmark run quickstart[/bold], "
    "then [bold]spmark report results/quickstart[/bold].",
    epilog=EXIT_CODES,
    rich_markup_mode="rich",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class ExitCode(IntEnum):
    """What the process says to a script."""

    OK = 0
    FAILURES = 1
    USAGE = 2
    DEVICE = 3
    RECORDS = 4
    INTERRUPTED = 130


class What(StrEnum):
    """What can be listed."""

    IMPLEMENTATIONS = "implementations"
    DATASETS = "datasets"
    SWEEPS = "sweeps"
    DEVICES = "devices"


class DeviceName(StrEnum):
    """What can be run on."""

    AUTO = "auto"
    CUDA = "cuda"
    CPU = "cpu"
    HOST_SIMT = "host-simt"


class StatusName(StrEnum):
    """How a recorded case may have ended (`spmark.impls.core.record.Status`, not imported for the help)."""

    OK = "ok"
    UNSUPPORTED = "unsupported"
    BUILD_ERROR = "build_error"
    RUN_ERROR = "run_error"
    WRONG_RESULT = "wrong_result"
    IMPLAUSIBLE = "implausible"
    OUT_OF_MEMORY = "out_of_memory"
    TIMEOUT = "timeout"


SweepArgument = Annotated[str, typer.Argument(help="A sweep's YAML file, or the name of a packaged one.")]
DeviceOption = Annotated[
    DeviceName, typer.Option(help="auto: GPU 0 if a driver and CuPy are there, else the CPU. host-simt: results only.")
]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILTER",
        help="Keep cases: [bold]key=value[/bold] (op, matrix, source, width, dtype, scaled, implementation, label; "
        "commas and * allowed), or a part or pattern of the case id. Repeat to narrow.",
    ),
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the sweep. Repeatable.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON on standard output, all else on the other.")]


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
    logging.basicConfig(level=logging.DEBUG if debug else logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    for noisy in ("matplotlib", "numba", "urllib3", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


@app.command("list")
def list_(
    what: Annotated[What, typer.Argument(help="What to list.")] = What.IMPLEMENTATIONS, as_json: JsonOption = False
) -> None:
    """List implementations, data sets (with licence and citation), sweeps or devices.

    Example: [bold]spmark list datasets[/bold]
    """
    from spmark.suite.commands.listing import listing

    listing(what.value, as_json)


@app.command()
def fetch(sweep: SweepArgument, overrides: SetOption = None, as_json: JsonOption = False) -> None:
    """Download or generate every matrix of a sweep, verify it and keep it in the cache.

    Example: [bold]spmark fetch graphs_spmm[/bold]
    """
    from spmark.suite.commands.fetch import fetch_matrices

    raise typer.Exit(ExitCode.USAGE if fetch_matrices(sweep, overrides or (), as_json) else ExitCode.OK)


@app.command(epilog=EXIT_CODES)
def run(
    sweep: SweepArgument,
    *,
    device: DeviceOption = DeviceName.AUTO,
    only: OnlyOption = None,
    limit: Annotated[int | None, typer.Option(min=0, help="Run at most this many cases.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be run or skipped, and why.")] = False,
    out: Annotated[Path, typer.Option(help="Folder of results; records go to OUT/SWEEP/DEVICE/.")] = Path("results"),
    retry: Annotated[
        list[StatusName] | None, typer.Option(help="Run recorded cases that ended so once more. Repeatable.")
    ] = None,
    warm: Annotated[bool, typer.Option("--warm", help="Time from a warm cache as well.")] = False,
    overrides: SetOption = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if a case of this run failed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a sweep: measure and check every case that has no record yet, each in a process of its own.

    Each record is on disk before the next case starts: after Ctrl-C, a crash or a reboot the same command goes on.
    ok and unsupported are final; a failure is tried once more by the next run.

    [bold]spmark run quickstart[/bold]

    [bold]spmark run graphs_spmm --device cuda --only matrix=cora,pubmed --only width=128[/bold]

    [bold]spmark run my.yaml --set widths=[32,64] --retry timeout --out /data/results[/bold]
    """
    from spmark.suite.commands.run import RunRequest, run_sweep

    request = RunRequest(
        sweep=sweep,
        device=device.value,
        only=tuple(only or ()),
        limit=limit,
        out=out,
        retry=tuple(status.value for status in retry or ()),
        warm=warm,
        overrides=tuple(overrides or ()),
        as_json=as_json,
    )
    ended = run_sweep(request, dry_run=dry_run)
    if ended.interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)
    raise typer.Exit(ExitCode.FAILURES if strict and ended.failures else ExitCode.OK)


@app.command()
def report(
    results: Annotated[list[Path], typer.Argument(help="Folders of records, or folders that hold some.")],
    *,
    out: Annotated[Path, typer.Option(help="Folder for the site, its figures and tables.")] = Path("out/report"),
    baseline: Annotated[str | None, typer.Option(help="Implementation that speed-ups are over.")] = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    paper: Annotated[
        str | None, typer.Option(metavar="NAME", help="Keep the sweeps and the claims of one paper, such as liteform.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Draw records: a self-contained site with figures, tables, every failure and the papers' claims beside ours.

    Figures come as SVG and PNG with their data as CSV, tables as CSV, Markdown and LaTeX.

    Example: [bold]spmark report results/quickstart --out out/quickstart[/bold]
    """
    from spmark.suite.commands.report import draw

    draw(results, out, baseline=baseline, title=title, paper=paper, as_json=as_json)


@app.command()
def show(
    matrix: Annotated[str, typer.Argument(help="source/name (@AT for the transpose), or a .mtx, .npz or .smtx file.")],
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


@app.command()
def spread(
    results: Annotated[list[Path], typer.Argument(help="Records of repeated runs: folders or files.")],
    fit: Annotated[
        Path | None, typer.Option(metavar="JSON", help="Learn from them what compare takes as spread between runs.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show how far repeated runs of the same code are from each other (A/A).

    Example: [bold]for n in 1 2 3; do spmark run smoke --out runs/$n; done; spmark spread runs[/bold]
    """
    from spmark.suite.commands.spread import fit_model, show_spread

    if fit is not None:
        fit_model(results, fit, as_json)
    else:
        show_spread(results, as_json)


@app.command(epilog=EXIT_CODES)
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

    Differences are held against what runs of the same code differ by, and corrected for the number of cases.

    [bold]spmark compare runs/before runs/after[/bold]
    """
    from spmark.suite.commands.compare import CompareRequest, compare_records

    request = CompareRequest(before, after, across, threshold_from, least, every, as_json)
    raise typer.Exit(ExitCode.FAILURES if compare_records(request) else ExitCode.OK)


@app.command()
def provenance(
    records: Annotated[Path, typer.Argument(help="Records: a folder or a file.")], as_json: JsonOption = False
) -> None:
    """Print the commands that repeat records, and what cannot be repeated exactly.

    Example: [bold]spmark provenance results/graphs_spmm[/bold]
    """
    from spmark.suite.commands.provenance import show_provenance

    show_provenance(records, as_json)


@app.command()
def doctor(as_json: JsonOption = False) -> None:
    """Check this machine: driver, CuPy, compilers, mirror, cache, disk, and each implementation.

    Exits with 1 if something that a run on the CPU needs is missing.
    """
    from spmark.suite.commands.doctor import examine

    raise typer.Exit(ExitCode.OK if examine(as_json) else ExitCode.FAILURES)


@app.command()
def calibrate(
    device: DeviceOption = DeviceName.AUTO,
    out: Annotated[Path | None, typer.Option(help="JSON file to write; the user's own by default.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure a device's bandwidth and rates, which floors and predictions are taken from.

    Example: [bold]spmark calibrate --device cuda --out nvidia-h200.json[/bold]
    """
    from spmark.suite.commands.calibrate import measure_rates

    measure_rates(device.value, out, as_json)


@app.command()
def quickstart(
    device: DeviceOption = DeviceName.AUTO,
    out: Annotated[Path, typer.Option(help="Folder for the page; records go to OUT/results.")] = Path("out/quickstart"),
) -> None:
    """Run the small sweep and draw its page: minutes on a laptop, nothing to download.

    Example: [bold]docker run --rm --volume "$PWD/data:/data" spmark:cpu quickstart[/bold]
    """
    from spmark.suite.commands.quickstart import run_quickstart

    ended = run_quickstart(device.value, out)
    raise typer.Exit(ExitCode.INTERRUPTED if ended.interrupted else ExitCode.OK)


@app.command(epilog=EXIT_CODES)
def reproduce(
    paper: Annotated[str, typer.Argument(help="stile, sparsetir, liteform, lo_spmm, dash, all, or a YAML file.")],
    *,
    budget: Annotated[str, typer.Option(metavar="TIME", help="When to stop: 90s, 30m, 2h, 1h30m.")] = "30m",
    device: DeviceOption = DeviceName.AUTO,
    out: Annotated[Path, typer.Option(help="Folder of results; pages go to OUT/reproduce/PAPER.")] = Path("results"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the steps and how far they are.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Reproduce a paper: calibrate, run its sweeps, most important cases first, and draw its page.

    No case is begun after the budget, and the same command goes on where it was: records are those of [bold]run[/bold].
    A paper that cannot run is named with what it lacks, and the exit code is 3; of [bold]all[/bold], the others run.

    Example: [bold]spmark reproduce liteform --budget 30m[/bold]
    """
    from spmark.suite.commands.reproduce import reproduce_papers

    ended = reproduce_papers(paper, budget, device.value, out, dry_run=dry_run, as_json=as_json)
    if ended.interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)
    raise typer.Exit(ExitCode.DEVICE if ended.missing else ExitCode.OK)


app.command("asv-import")(asv_import)


def main() -> None:
    """Run the command line; the console's entry point."""
    sys.exit(_guarded())


def _guarded() -> int:
    """Run the command; an error that spmark raised on purpose is one message and an exit code."""
    try:
        app(prog_name="spmark")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader of standard output (head, less) has what it wanted.
        sys.stderr.close()
        return ExitCode.OK
    except Exception as error:
        from spmark.impls.core.errors import SpmarkError

        if not isinstance(error, SpmarkError) or logging.getLogger().isEnabledFor(logging.DEBUG):
            raise
        typer.echo(f"spmark: {error}", err=True)
        return _exit_code(error)
    return ExitCode.OK


def _exit_code(error: Exception) -> int:
    from spmark.impls.core import errors

    if isinstance(error, errors.RecordError):
        return ExitCode.RECORDS
    if isinstance(error, errors.DeviceError | errors.BuildError | errors.KernelFault):
        return ExitCode.DEVICE
    return ExitCode.USAGE
