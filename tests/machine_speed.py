"""What programs compute, at the speed of the machine on which the tests' limits of seconds were set."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

_START = [sys.executable, "-c", "import numpy, pydantic, rich.console, typer"]
_USUAL_S = 0.28
"""Seconds of computing that `_START` takes on that machine."""


def usual_seconds(command: Sequence[str], **options: Any) -> tuple[float, subprocess.CompletedProcess[str]]:
    """Run a command; give what it computes, in seconds of the usual machine, and how it ended.

    What a program computes takes longer where other programs compete for caches and clocks, from one second to the
    next: starts of Python just before and just after the command tell by how much. ``options`` are those of
    `subprocess.run`.
    """
    before, _ = _computed(_START)
    seconds, ended = _computed(command, **options)
    after, _ = _computed(_START)
    return seconds / max(1.0, (before + after) / 2 / _USUAL_S), ended


def _computed(command: Sequence[str], **options: Any) -> tuple[float, subprocess.CompletedProcess[str]]:
    before = os.times()
    ended = subprocess.run(command, capture_output=True, text=True, **options)
    after = os.times()
    return after.children_user - before.children_user + after.children_system - before.children_system, ended
