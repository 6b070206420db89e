"""``spmark quickstart``: the small sweep and its page in one command, as a container's first word."""

from __future__ import annotations

from pathlib import Path

from rich.markup import escape

from spmark.impls.core.errors import DatasetError, MatrixError
from spmark.suite.commands.console import console, say, working
from spmark.suite.commands.report import draw
from spmark.suite.commands.run import Ended, run_sweep
from spmark.suite.options import Options

SWEEP = "quickstart"
_BUDGET_S = 20.0
"""Seconds for the searches of a matrix; they take about one."""


def run_quickstart(device: str, out: Path) -> Ended:
    """Run the sweep into ``out/results`` and draw its pages into ``out``; a run that was interrupted has no page.

    Raises
    ------
    SpmarkError
        The device or the folder cannot be used.
    """
    ended = run_sweep(Options(sweep=SWEEP, device=device), out / "results")
    if not ended.interrupted:
        _draw_compositions(device, out / "compositions")
        draw([out / "results"], out, baseline=None, title=None, paper=None, also=["narrow"], as_json=False)
    return ended


def _draw_compositions(name: str, out: Path) -> None:
    """Draw a page for each matrix of the sweep: what is chosen for SpMM on a GPU, also where there is none."""
    from spmark.datasets.cache import Cache
    from spmark.datasets.load import load_matrix
    from spmark.datasets.sweep import Sweep
    from spmark.impls.core.devicespec import DeviceKind
    from spmark.impls.core.names import path_component
    from spmark.impls.core.problem import Op, Problem
    from spmark.impls.runtime.device import calibrated, find, shipped
    from spmark.impls.table import FORECASTS
    from spmark.suite.commands.tune import FORESEEN, write_forecast

    screen, sweep, here = console(False), Sweep.load(SWEEP), find(name)
    device = calibrated(here) if here.kind is DeviceKind.CUDA else shipped(FORESEEN)
    for spec in sweep.matrices:
        try:
            matrix = load_matrix(spec, Cache.default(), sweep.seed).csr
        except (DatasetError, MatrixError) as error:
            say(screen, f"[yellow]no composition of {escape(spec.id)}: {escape(str(error))}[/yellow]")
            continue
        problem = Problem(Op.SPMM, matrix, (spec.widths or sweep.widths)[0], sweep.dtypes[0])
        page = out / f"{path_component('-'.join(spec.id.split('/')))}.html"
        with working(screen, spec.id):
            write_forecast(f"spmm with {spec.id}", problem, device, FORECASTS, _BUDGET_S, page)
        say(screen, escape(str(page)))
