"""The group ``study``: ``label`` and ``collect`` measure what predictors learn from, ``train`` makes predictors.

``transfer`` compares models that move between platforms, ``replay`` judges predictors on records, ``calibrate``
measures the constants of cost models, and ``spread`` says how far runs of the same code differ.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from spmark.impls.table import PLATFORMS, find_platform
from spmark.studies.table import CONTRACTS
from spmark.suite.cli.machine import ForceOption
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

app = typer.Typer(help="Studies of predictors: labels, training, and how good they are.", no_args_is_help=True)
MethodArgument = Annotated[
    str, typer.Argument(help=f"An implementation that predicts: {' or '.join(CONTRACTS['predictors'])}.")
]

TrainedArgument = Annotated[
    str, typer.Argument(help=f"What predicts: {' or '.join((*CONTRACTS['predictors'], *CONTRACTS['transfer']))}.")
]


@app.command("label")
def label(
    method: MethodArgument,
    *,
    matrices: Annotated[
        list[str] | None,
        typer.Option(
            "--matrix",
            metavar="PATTERN",
            help="source/name, * allowed, or the name of a list; by default the method's own.",
        ),
    ] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="float32 or float16; both by default. Repeatable.")] = None,
    budget: Annotated[str, typer.Option(metavar="TIME", help="No matrix begins after this time: 90s, 7m.")] = "7m",
    shard: Annotated[str, typer.Option(metavar="N/M", help="Every M-th matrix, beginning with the N-th.")] = "1/1",
    device: DeviceOption = "auto",
    gpus: GpusOption = None,
    scheduler: SchedulerOption = None,
    cluster: ClusterOption = None,
    out: Annotated[Path, typer.Option(help="Folder of labels.")] = Path("results/labels"),
    as_json: JsonOption = False,
) -> None:
    """Measure labels on a GPU, matrix by matrix; the same command goes on where it was.

    Exits with 1 while matrices are left. What cannot be measured is told, and tried again by the next command.

    Where a method measures one dtype alone, --dtype changes nothing. On several GPUs, each measures a shard.

    Example: [bold]spmark study label METHOD --shard 1/4 --budget 7m[/bold]
    """
    from spmark.suite.study.label import LabelRequest, measure_labels

    if gpus or scheduler or cluster:
        raise typer.Exit(_on_cluster(device, gpus, scheduler, cluster, shard=shard, out=out, as_json=as_json))
    request = LabelRequest(
        method=method,
        patterns=tuple(matrices or ()),
        dtypes=tuple(dtype or ()),
        budget=budget,
        shard=shard,
        device=device,
        out=out,
        as_json=as_json,
    )
    raise typer.Exit(ExitCode.FAILURES if measure_labels(request) else ExitCode.OK)


@app.command("collect")
def collect(
    *,
    platform: Annotated[str, typer.Option(metavar="NAME", help=f"What configs run on: {' or '.join(PLATFORMS)}.")],
    sweep: Annotated[str, typer.Option(help="A sweep's YAML file, or the name of a packaged one: its problems.")],
    configs: Annotated[int, typer.Option(min=1, help="Configs of a problem to measure, beside the default.")] = 100,
    budget: Annotated[str, typer.Option(metavar="TIME", help="No problem begins after this time: 90s, 7m.")] = "7m",
    shard: Annotated[str, typer.Option(metavar="N/M", help="Every M-th matrix, beginning with the N-th.")] = "1/1",
    overrides: SetOption = None,
    gpus: GpusOption = None,
    scheduler: SchedulerOption = None,
    cluster: ClusterOption = None,
    out: Annotated[Path, typer.Option(help="Folder of samples.")] = Path("results/samples"),
    as_json: JsonOption = False,
) -> None:
    """Measure configs of a platform that are drawn uniformly, problem by problem; the same command goes on.

    Exits with 1 while problems are left. What cannot be measured is kept with the reason and not tried again. Half of
    the samples are kept apart, so that what one half chooses is valued by the other. On several GPUs, each measures a
    shard.

    Example: [bold]spmark study collect --platform spade_sim --sweep dash_target --shard 1/2[/bold]
    """
    from spmark.suite.study.collect import collect_samples

    if gpus or scheduler or cluster:
        device = find_platform(platform).kind or "cpu"
        raise typer.Exit(_on_cluster(device, gpus, scheduler, cluster, shard=shard, out=out, as_json=as_json))
    left = collect_samples(
        platform, sweep, overrides or (), configs=configs, budget=budget, shard=shard, out=out, as_json=as_json
    )
    raise typer.Exit(ExitCode.FAILURES if left else ExitCode.OK)


def _on_cluster(
    device: str, gpus: str | None, scheduler: str | None, file: Path | None, *, shard: str, out: Path, as_json: bool
) -> ExitCode:
    """Run this process's command on a cluster, a shard a worker."""
    from spmark.studies.contracts import Outcome
    from spmark.suite.cli.console import tell
    from spmark.suite.cluster.clusters import opened
    from spmark.suite.cluster.shards import run_shards

    if shard != "1/1":
        raise typer.BadParameter(f"expected none where each worker measures one, found {shard}", param_hint="--shard")
    with opened(device, gpus=gpus, scheduler=scheduler, file=file) as place:
        assert place is not None
        answers = run_shards(place, sys.argv[1:], out)
    left = sum(int(one.get("left", 0)) for one in answers)
    tell(Outcome({"shards": answers, "left": left}, f"{out}: {len(answers)} shards, {left} left", left=left), as_json)
    return ExitCode.FAILURES if left else ExitCode.OK


@app.command("train")
def train(
    method: TrainedArgument,
    *,
    source: Annotated[
        list[Path] | None,
        typer.Option(help="A model that moves: samples of the cheap platform, files or folders. Repeatable."),
    ] = None,
    target: Annotated[
        list[Path] | None, typer.Option(help="Samples of the platform that the model is for. Repeatable.")
    ] = None,
    source_matrices: Annotated[int, typer.Option(min=1, help="Matrices to take of --source.")] = 100,
    target_matrices: Annotated[int, typer.Option(min=1, help="Matrices to take of --target.")] = 5,
    op: Annotated[str, typer.Option(help="A model that moves: spmm or sddmm.")] = "spmm",
    seed: Annotated[int, typer.Option(min=0, help="Of a model that moves.")] = 0,
    epochs: Annotated[int, typer.Option(min=1, help="Of each phase of a model that moves.")] = 100,
    labels: Annotated[
        list[str] | None,
        typer.Option(help="Files of labels or folders that hold some; [bold]published[/bold] for the authors'."),
    ] = None,
    as_published: Annotated[
        bool, typer.Option("--as-published", help="With the paper's features and questions, where ours differ.")
    ] = False,
    name: Annotated[str, typer.Option(help="What records call the model.")] = "mine",
    out: Annotated[Path | None, typer.Option(help="File of the model, or folder of the study.")] = None,
    reproduce: Annotated[
        bool, typer.Option("--reproduce", help="Evaluate on the published labels instead: tables and figures.")
    ] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Random splits of a study.")] = 20,
    slow: Annotated[bool, typer.Option("--slow", help="Train what takes an hour as well.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Train predictors from labels, or reproduce what their paper says about them on the published labels.

    [bold]spmark study train METHOD --labels results/labels --name h200 --out h200.model[/bold]

    [bold]spmark study train METHOD --reproduce --out out/predictors[/bold]

    A model that moves between platforms learns from samples of spmark study collect. Without --out it is kept where the
    cost model of the same name looks for it.

    [bold]spmark study train METHOD --source results/samples/cpu --target results/samples/cuda --out cuda.model[/bold]
    """
    if method in CONTRACTS["transfer"]:
        from spmark.suite.study.transfer import TransferRequest, train_transfer

        train_transfer(
            TransferRequest(
                method=method,
                source=source or (),
                target=target or (),
                source_matrices=source_matrices,
                target_matrices=target_matrices,
                op=op,
                seed=seed,
                epochs=epochs,
                out=out,
                as_json=as_json,
            )
        )
        return
    from spmark.suite.study.train import reproduce_study, train_predictor

    if reproduce:
        reproduce_study(method, seeds, slow, out or Path("out") / f"{method}-predictors", as_json)
        return
    train_predictor(method, labels or (), out, name, as_json=as_json, as_published=as_published)


@app.command("transfer")
def transfer(
    method: Annotated[str, typer.Argument(help=f"What moves between platforms: {' or '.join(CONTRACTS['transfer'])}.")],
    *,
    source: Annotated[list[Path], typer.Option(help="Samples of the cheap platform, files or folders. Repeatable.")],
    target: Annotated[list[Path], typer.Option(help="Samples of the platform that models are for. Repeatable.")],
    evaluation: Annotated[list[Path], typer.Option(help="Samples of that platform that judge. Repeatable.")],
    source_matrices: Annotated[int, typer.Option(min=1, help="Matrices to take of --source.")] = 100,
    target_matrices: Annotated[int, typer.Option(min=1, help="Matrices to take of --target.")] = 5,
    methods: Annotated[
        list[str] | None, typer.Option("--methods", metavar="NAME", help="What to compare; all by default. Repeatable.")
    ] = None,
    op: Annotated[str, typer.Option(help="spmm or sddmm; by default whatever the samples have.")] = "",
    seeds: Annotated[int, typer.Option(min=1, help="Of the main models; variants have two at most.")] = 5,
    epochs: Annotated[int, typer.Option(min=1, help="Of each phase.")] = 100,
    budget: Annotated[str, typer.Option(metavar="TIME", help="No epoch begins after this time: 90s, 8m.")] = "8m",
    shard: Annotated[
        str, typer.Option(metavar="N/M", help="Every M-th seed, beginning with the N-th; a folder for each.")
    ] = "1/1",
    out: Annotated[Path, typer.Option(help="Folder of facts, models and checkpoints.")] = Path("results/study"),
    as_json: JsonOption = False,
) -> None:
    """Compare models that move between platforms with what stands beside them, on the same samples and configs.

    Every method is trained with every seed, and judged on matrices that no training has seen. The facts stand in
    transfers.jsonl. The same command goes on; it exits with 1 while trainings are left. Shards train seeds on several
    machines; [bold]spmark report[/bold] takes their folders together.

    [bold]spmark study transfer METHOD --source samples/cpu --target target.jsonl --evaluation judging.jsonl[/bold]
    """
    from spmark.suite.study.transfer import StudyRequest, study_transfer

    request = StudyRequest(
        method=method,
        source=source,
        target=target,
        evaluation=evaluation,
        source_matrices=source_matrices,
        target_matrices=target_matrices,
        methods=tuple(methods or ()),
        op=op,
        seeds=seeds,
        epochs=epochs,
        budget=budget,
        shard=shard,
        out=out,
        as_json=as_json,
    )
    raise typer.Exit(ExitCode.FAILURES if study_transfer(request) else ExitCode.OK)


@app.command("replay")
def replay(
    results: Annotated[
        list[Path], typer.Argument(help="Folders of records, or files of collected samples, or folders that hold some.")
    ],
    *,
    model: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="A cost model of the implementations, such as estimate or prices, which scores anew; "
            "[bold]recorded[/bold] for what searches predicted; [bold]random[/bold] for the floor to compare with.",
        ),
    ] = "recorded",
    seed: Annotated[int, typer.Option(min=0, help="Of random.")] = 0,
    only: OnlyOption = None,
    export: Annotated[
        tuple[str, Path] | None,
        typer.Option(metavar="t4 FILE", help="Also write the configs and their times in Kernel Tuner's T4 format."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Let a cost model choose among the configs that recorded searches or spmark study collect measured; needs no GPU.

    Shows what its first choice costs over the best one measured (regret), how well its order agrees with the times, and
    how often the best is among its first 1, 5 and 10.

    A model may give several configs the same score. The column "tuned" has the regret of a search that measures all
    configs with the best score. The column "by chance" has the regret of a search that measures all configs of one
    score, drawn at random.

    Example: [bold]spmark study replay report/reference/h200/lo_spmm_fig6_reordering --model estimate[/bold]
    """
    from spmark.suite.study.replay_command import replay_records

    replay_records(results, model, seed, only or (), export, as_json=as_json)


@app.command("calibrate")
def calibrate(
    method: Annotated[str, typer.Argument(help=f"Whose constants: {' or '.join(CONTRACTS['calibration'])}.")],
    device: DeviceOption = "auto",
    out: Annotated[Path | None, typer.Option(help="JSON file to write; METHOD-DEVICE.json by default.")] = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure what an implementation needs of a GPU beside the device's rates.

    [bold]spmark study calibrate METHOD --out mine.json[/bold], for sweeps that pin [bold]calibration: mine.json[/bold]
    """
    from spmark.suite.study.constants import measure_constants

    measure_constants(method, device, out, as_json, force=force)


@app.command("spread")
def spread(
    results: Annotated[list[Path], typer.Argument(help="Records of repeated runs: folders or files.")],
    fit: Annotated[
        Path | None, typer.Option(metavar="JSON", help="File that compare takes as spread between runs.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show how far repeated runs of the same code are from each other (A/A).

    Example: [bold]for n in 1 2 3; do spmark run smoke --out runs/$n; done; spmark study spread runs[/bold]
    """
    from spmark.suite.cli.compare import show_spread

    show_spread(results, fit, as_json)
