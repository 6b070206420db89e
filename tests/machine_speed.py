"""How fast this machine computes, for tests that hold a command to a number of seconds."""

from __future__ import annotations

import time

_USUAL_S = 0.045
"""Seconds of computing of `_loop` on the machine that the tests' limits were set on."""


def slowness() -> float:
    """Give by what this machine is slower than the one that the limits were set on; at least 1."""
    return max(1.0, min(_loop() for _ in range(5)) / _USUAL_S)


def _loop() -> float:
    began, total = time.process_time(), 0
    for number in range(1_000_000):
        total += number
    return time.process_time() - began
