"""``spmark quickstart``: the small sweep and its page in one command, as a container's first word."""

from __future__ import annotations

from pathlib import Path

from spmark.suite.cli.report import draw
from spmark.suite.cli.run import Ended, run_sweep
from spmark.suite.plan.options import Options

SWEEP = "quickstart"


def run_quickstart(device: str, out: Path) -> Ended:
    """Run the sweep into ``out/results`` and draw its pages into ``out``; a run that was interrupted has no page.

    Raises
    ------
    SpmarkError
        The device or the folder cannot be used.
    """
    ended = run_sweep(SWEEP, device, Options(), out / "results")
    if not ended.interrupted:
        draw([out / "results"], out, baseline=None, title=None, paper=None, also=["narrow"], as_json=False)
    return ended
