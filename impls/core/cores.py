"""The cores that this process may use."""

from __future__ import annotations

import os


def allowed_cores() -> list[int]:
    """List their numbers, rising: those of the process's affinity where the system knows one, else all."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))
