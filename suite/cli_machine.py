"""Commands about this machine and what there is: ``doctor``, ``list`` and ``calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spmark.suite.cli_options import DeviceName, DeviceOption, ExitCode, JsonOption, What

PANEL = "Machine"


def add_to(app: typer.Typer) -> None:
    """Add the commands of this file to the program."""
    app.command("doctor", rich_help_panel=PANEL)(doctor)
    app.command("list", rich_help_panel=PANEL)(list_)
    app.command("calibrate", rich_help_panel=PANEL)(calibrate)


def doctor(as_json: JsonOption = False) -> None:
    """Check this machine: driver, CuPy, compilers, mirror, cache, disk, and each implementation.

    Exits with 1 if something that a run on the CPU needs is missing.
    """
    from spmark.suite.commands.doctor import examine

    raise typer.Exit(ExitCode.OK if examine(as_json) else ExitCode.FAILURES)


def list_(
    what: Annotated[What, typer.Argument(help="What to list.")] = What.IMPLEMENTATIONS, as_json: JsonOption = False
) -> None:
    """List implementations, data sets (with licence and citation), sweeps or devices.

    Example: [bold]spmark list datasets[/bold]
    """
    from spmark.suite.commands.listing import listing

    listing(what.value, as_json)


def calibrate(
    device: DeviceOption = DeviceName.AUTO,
    out: Annotated[Path | None, typer.Option(help="JSON file to write; the user's own by default.")] = None,
    stile: Annotated[
        bool, typer.Option("--stile", help="Measure the tiles of STile's cost model instead; needs a GPU.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a calibration although the machine is busy or rates differ much.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure a device's bandwidth and rates, which floors and predictions are taken from.

    A calibration is not replaced while other processes take the cores, nor by rates that differ by more than a half.

    [bold]spmark calibrate --device cuda --out nvidia-h200.json[/bold]

    [bold]spmark calibrate --stile --out stile.json[/bold], for sweeps that pin [bold]calibration: stile.json[/bold]
    """
    from spmark.suite.commands.calibrate import measure_rates, measure_tiles

    (measure_tiles if stile else measure_rates)(device.value, out, as_json, force=force)
