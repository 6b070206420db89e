"""How fast this machine starts programs now, for tests that hold a command to a number of seconds."""

from __future__ import annotations

import os
import subprocess
import sys

_START = "import numpy, pydantic, rich.console, typer"
_USUAL_S = 0.28
"""Seconds of computing that `_START` takes on the machine that the tests' limits were set on."""


def slowness() -> float:
    """Give by what programs start slower here and now than where the limits were set; at least 1."""
    return max(1.0, min(_start_s() for _ in range(3)) / _USUAL_S)


def _start_s() -> float:
    before = os.times()
    subprocess.run([sys.executable, "-c", _START], check=True)
    after = os.times()
    return after.children_user - before.children_user + after.children_system - before.children_system
