"""Commands about this machine and what there is: ``doctor``, ``list`` and ``calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from spmark.impls.table import CONTRACTS
from spmark.suite.cli.completion import implementations
from spmark.suite.cli.options import EXIT_CODES, DeviceName, DeviceOption, ExitCode, JsonOption, What

PANEL = "Machine"


class _CalibrateCommand(TyperCommand):
    """Reads ``--NAME`` as ``--of NAME``, for every implementation that has something to calibrate."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Write the short form out."""
        short = {f"--{name}": ["--of", name] for name in CONTRACTS["calibration"]}
        return super().parse_args(ctx, [part for arg in args for part in short.get(arg, [arg])])


def add_to(app: typer.Typer) -> None:
    """Add the commands of this file to the program."""
    app.command("doctor", rich_help_panel=PANEL)(doctor)
    app.command("list", rich_help_panel=PANEL)(list_)
    app.command("check", rich_help_panel=PANEL, epilog=EXIT_CODES)(check)
    app.command("calibrate", cls=_CalibrateCommand, rich_help_panel=PANEL)(calibrate)


def doctor(as_json: JsonOption = False) -> None:
    """Check this machine: driver, CuPy, compilers, mirror, cache, disk, and each implementation.

    Exits with 1 if something that a run on the CPU needs is missing.
    """
    from spmark.suite.cli.doctor import examine

    raise typer.Exit(ExitCode.OK if examine(as_json) else ExitCode.FAILURES)


def list_(
    what: Annotated[What, typer.Argument(help="What to list.")] = What.IMPLEMENTATIONS, as_json: JsonOption = False
) -> None:
    """List implementations, data sets (with licence and citation), sweeps or devices.

    Example: [bold]spmark list datasets[/bold]
    """
    from spmark.suite.cli.listing import listing

    listing(what.value, as_json)


def check(
    implementation: Annotated[
        str,
        typer.Argument(
            help="A name, or a class in a file such as [bold]./mine.py:MyKernel[/bold].",
            autocompletion=implementations,
        ),
    ],
    device: Annotated[
        DeviceName, typer.Option(help="auto: every device that the class names and that is here.")
    ] = DeviceName.AUTO,
    as_json: JsonOption = False,
) -> None:
    """Run spmark's own conformance tests on an implementation, with a message for each fault.

    The tests build and run every tiny problem that the class takes. They check results, that operands stay unchanged,
    what the plan reports (phases, stored elements, bytes), and that wrong arrays are refused.
    The file is imported, and its code runs in this process.

    Example: [bold]spmark check ./mine.py:MyKernel --device host-simt[/bold]
    """
    from spmark.suite.cli.check import check_implementation

    raise typer.Exit(ExitCode.OK if check_implementation(implementation, device.value, as_json) else ExitCode.FAILURES)


def calibrate(
    device: DeviceOption = DeviceName.AUTO,
    out: Annotated[Path | None, typer.Option(help="JSON file to write; the user's own by default.")] = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--of",
            metavar="NAME",
            help="Measure what an implementation's cost model needs instead, on a GPU. In short: "
            f"{', '.join(f'[bold]--{name}[/bold]' for name in CONTRACTS['calibration'])}.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a calibration although the machine is busy or rates differ much.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure a device's bandwidth and rates, which floors and predictions are taken from.

    A calibration is not replaced while other processes take the cores, nor by rates that differ by more than a half.

    [bold]spmark calibrate --device cuda --out nvidia-h200.json[/bold]

    [bold]spmark calibrate --of NAME --out mine.json[/bold], for sweeps that pin [bold]calibration: mine.json[/bold]
    """
    from spmark.suite.cli.calibrate import measure_constants, measure_rates

    if method is None:
        measure_rates(device.value, out, as_json, force=force)
    else:
        measure_constants(method, device.value, out, as_json, force=force)
