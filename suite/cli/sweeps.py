"""Commands about sweeps and their records: ``run``, ``report``, ``compare``, ``reproduce``, ``fetch``, ``quickstart``.

Each command's code stands in the file of its name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, get_args

import typer

from spmark.impls.core.enums import DType, Flush, Status, SweepOp
from spmark.suite.cli import options
from spmark.suite.cli.options import (
    ClusterOption,
    DeviceOption,
    ExitCode,
    GpusOption,
    JsonOption,
    OnlyOption,
    SchedulerOption,
    SetOption,
)

CANDIDATES, MODELS = "candidates", "models"
"""What ``fetch`` takes in place of a sweep."""


def quickstart(
    device: DeviceOption = "auto",
    out: Annotated[Path, typer.Option(help="Folder for the page; records go to OUT/results.")] = Path("out/quickstart"),
) -> None:
    """Run the small sweep and draw its page: minutes on a laptop, nothing to download.

    Example: [bold]docker run --rm --volume "$PWD/data:/data" spmark:cpu quickstart[/bold]
    """
    from spmark.suite.cli.run import run_quickstart

    ended = run_quickstart(device, out)
    raise typer.Exit(ExitCode.INTERRUPTED if ended.interrupted else ExitCode.OK)


def fetch(
    sweep: Annotated[
        str,
        typer.Argument(
            metavar="SWEEP",
            help="A sweep's YAML file, or the name of a packaged one; [bold]candidates[/bold] or [bold]models[/bold].",
            autocompletion=options.fetchable,
        ),
    ],
    *,
    overrides: SetOption = None,
    archive: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="PATH", help="The archive of candidates, or a folder of models, on this machine."
        ),
    ] = None,
    into: Annotated[
        Path | None, typer.Option(help="Of candidates: the published records; report/reference by default.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Of a sweep: list origins and bytes, and download nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Download or generate every matrix of a sweep, verify it and keep it in the cache.

    Several files are downloaded at a time; the same command goes on where a download stopped. What cannot be had is
    listed at the end, with the reason. [bold]spmark mirror make[/bold] writes a folder for machines without a network.

    [bold]candidates[/bold] is not a sweep: this word brings what the searches of the published records measured to its
    place beside these records, out of a file, from the release, or out of the checkout's history without a network.

    [bold]spmark fetch graphs_spmm[/bold]

    [bold]spmark fetch candidates[/bold]

    [bold]models[/bold] brings the published models that are too large to be installed with spmark into the cache.

    [bold]spmark fetch models[/bold]
    """
    from spmark.suite.cli.fetch import fetch_candidates, fetch_matrices, fetch_models, list_downloads

    if dry_run and (archive or into or sweep in (CANDIDATES, MODELS)):
        raise typer.BadParameter(f"expected a sweep, found {sweep}", param_hint="--dry-run")
    if sweep == CANDIDATES:
        if overrides:
            raise typer.BadParameter("expected a sweep, found candidates, which have no keys", param_hint="--set")
        fetch_candidates(into, archive, as_json)
        return
    if sweep == MODELS and not (overrides or into):
        fetch_models(archive, as_json)
        return
    if archive or into:
        raise typer.BadParameter(f"expected {CANDIDATES} or {MODELS}, found {sweep!r}", param_hint="--from, --into")
    if dry_run:
        list_downloads(sweep, overrides or (), as_json)
        return
    raise typer.Exit(ExitCode.USAGE if fetch_matrices(sweep, overrides or (), as_json) else ExitCode.OK)


def run(
    sweep: Annotated[
        str | None,
        typer.Argument(
            help="A sweep's YAML file, or the name of a packaged one; or give --matrix.",
            autocompletion=options.sweeps,
        ),
    ] = None,
    *,
    matrix: Annotated[
        str | None,
        typer.Option(
            metavar="MATRIX",
            autocompletion=options.matrices,
            help="Run one matrix without a sweep's file: a file (.mtx, .npz, .smtx), or SOURCE/NAME. The next four "
            "options go with it.",
        ),
    ] = None,
    widths: Annotated[list[int] | None, typer.Option("--width", min=1, help="J. Repeatable.")] = None,
    ops: Annotated[
        list[str] | None,
        typer.Option(
            "--op",
            metavar=f"[{'|'.join(get_args(SweepOp))}]",
            autocompletion=options.operators,
            help="spmm by default. Repeatable.",
        ),
    ] = None,
    dtypes: Annotated[list[DType] | None, typer.Option("--dtype", help="float32 by default. Repeatable.")] = None,
    implementations: Annotated[
        list[str] | None,
        typer.Option(
            "--implementation",
            metavar="NAME",
            autocompletion=options.implementations,
            help="A name, or a file such as ./mine.py:MyKernel or ./mine.cu; by default those that compete on the "
            "device. The device's baseline is always measured, too. Repeatable.",
        ),
    ] = None,
    device: DeviceOption = "auto",
    gpus: GpusOption = None,
    scheduler: SchedulerOption = None,
    cluster: ClusterOption = None,
    only: OnlyOption = None,
    limit: Annotated[int | None, typer.Option(min=0, help="Run at most this many cases.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be run or skipped, and why.")] = False,
    out: Annotated[Path, typer.Option(help="Folder of results; records go to OUT/SWEEP/DEVICE/.")] = Path("results"),
    retry: Annotated[
        list[Status] | None, typer.Option(help="Run recorded cases with this ending once more. Repeatable.")
    ] = None,
    warm: Annotated[bool, typer.Option("--warm", help="Time from a warm cache as well.")] = False,
    cusparse: Annotated[
        str,
        typer.Option(
            metavar="PATH|VERSION",
            help="The cuSPARSE to measure with, by its file, its folder, or a version such as 12.9; cases that have "
            "records of another version alone are measured again. By default the installed one, and all records count.",
        ),
    ] = "",
    flush: Annotated[
        Flush,
        typer.Option(
            help="How caches are emptied before each sample. write: a buffer is written, and a run with a large result "
            "pays for storing it. read: then another buffer is read, which leaves nothing to store."
        ),
    ] = Flush.WRITE,
    overrides: SetOption = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if a case of this run failed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a sweep: measure and check every case that has no record yet, in a child process.

    Each record is on disk before the next case starts: after Ctrl-C, a crash or a reboot the same command goes on.
    ok and unsupported are final; a failure is tried once more by the next run.

    [bold]spmark run quickstart[/bold]

    [bold]spmark run graphs_spmm --device cuda --only matrix=cora,pubmed --only width=128[/bold]

    [bold]spmark run my.yaml --set widths=[32,64] --retry timeout --out /data/results[/bold]

    [bold]spmark run --matrix mine.mtx --width 64 --implementation ./mine.py:MyKernel[/bold]

    [bold]spmark run graphs_spmm --gpus all[/bold]
    """
    from spmark.suite.cli.run import run_sweep
    from spmark.suite.cluster.clusters import opened
    from spmark.suite.plan.options import Options

    one = None
    if sweep is None or matrix or widths or ops or dtypes or implementations:
        from spmark.suite.plan.onematrix import one_matrix

        one = one_matrix(sweep, matrix, widths or (), ops or (), dtypes or (), implementations or ())
    kept, again = tuple(only or ()), tuple(retry or ())
    asked = Options(only=kept, retry=again, limit=limit, warm=warm, sparse_library=cusparse, flush=flush)
    ended = run_sweep(
        one or str(sweep),
        device,
        asked,
        out,
        overrides=overrides or (),
        dry_run=dry_run,
        as_json=as_json,
        cluster=opened(device, gpus=gpus, scheduler=scheduler, file=cluster, sparse_library=cusparse),
    )
    if ended.interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)
    raise typer.Exit(ExitCode.FAILURES if strict and ended.failures else ExitCode.OK)


def reproduce(
    paper: Annotated[
        str,
        typer.Argument(
            help="stile, sparsetir, liteform, lo_spmm, dash, all, or a YAML file.", autocompletion=options.papers
        ),
    ],
    *,
    budget: Annotated[str, typer.Option(metavar="TIME", help="When to stop: 90s, 30m, 2h, 1h30m.")] = "30m",
    device: DeviceOption = "auto",
    gpus: GpusOption = None,
    scheduler: SchedulerOption = None,
    cluster: ClusterOption = None,
    out: Annotated[Path, typer.Option(help="Folder of results; pages go to OUT/reproduce/PAPER.")] = Path("results"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show matrices, steps and how far these are.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Reproduce a paper: calibrate, run its sweeps, most important cases first, and draw its page.

    No case begins after the budget. The same command goes on where it stopped: records are those of [bold]run[/bold]. A
    paper that cannot run is named with what it lacks, and the exit code is 3; of [bold]all[/bold], the others run. Of
    several GPUs, a paper's study of models uses the first of this machine.

    Example: [bold]spmark reproduce liteform --budget 30m[/bold]
    """
    from spmark.suite.cli.reproduce import reproduce_papers
    from spmark.suite.cluster.clusters import opened

    place = opened(device, gpus=gpus, scheduler=scheduler, file=cluster)
    ended = reproduce_papers(paper, budget, device, out, dry_run=dry_run, as_json=as_json, cluster=place)
    if ended.interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)
    raise typer.Exit(ExitCode.DEVICE if ended.missing else ExitCode.OK)


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
    figures: Annotated[
        Literal["usual", "all"],
        typer.Option(help="usual: what a reader looks at. all: every figure that records fill."),
    ] = "usual",
    as_json: JsonOption = False,
) -> None:
    """Draw records: a site that needs no network, with every failure and the papers' claims beside ours.

    The first page says which implementation is fastest for each matrix and J, and leads to a page for each sweep.
    Tables have filters, and charts say the numbers of each point.
    Figures come as SVG with their data as CSV, tables as CSV, and summaries as LaTeX, too.
    Into the folder of an earlier report, only sweeps are drawn of which something has changed.

    Example: [bold]spmark report results/quickstart --out out/quickstart[/bold]
    """
    from spmark.suite.cli.report import draw

    also = [form for form, asked in (("narrow", narrow), ("png", png)) if asked]
    draw(results, out, baseline=baseline, title=title, paper=paper, also=also, every=figures == "all", as_json=as_json)


def compare(
    before: Annotated[Path, typer.Argument(help="Records to compare with: a folder or a file.")],
    after: Annotated[Path, typer.Argument(help="Records that may have become slower.")],
    *,
    across: Annotated[
        bool, typer.Option("--across", help="Allow another GPU, driver or protocol: compares speed-ups only.")
    ] = False,
    threshold_from: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Records of repeated runs (A/A), or what study spread --fit made of them."),
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
