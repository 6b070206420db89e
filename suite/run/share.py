"""The part of a machine that one of several processes may take, where these measure side by side on its GPUs."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

from spmark.impls.core.machine import allowed_cores

SHARE = "SPMARK_SHARE"
"""Names the part that this process and its children may take, counted from 0, and the number of parts: ``2/8``."""


def share() -> tuple[int, int]:
    """Give which part of how many parts of the machine this process may take; (0, 1) for all of it."""
    number, _, parts = os.environ.get(SHARE, "0/1").partition("/")
    return int(number), int(parts)


def share_of_cores() -> list[int]:
    """List the cores of this process's part, rising.

    Threads of one core stand together, and so do cores of one processor: no core is in two parts, unless there are more
    parts than cores.
    """
    cores, (number, parts) = sorted(allowed_cores(), key=_place), share()
    first = number * len(cores) // parts
    return sorted(cores[first : max(first + 1, (number + 1) * len(cores) // parts)])


def _place(core: int) -> tuple[int, ...]:
    """Give the processor and the core of a hardware thread; its number alone where the system does not say."""
    folder = Path(f"/sys/devices/system/cpu/cpu{core}/topology")
    try:
        return *(int((folder / name).read_text()) for name in ("physical_package_id", "core_id")), core
    except (OSError, ValueError):
        return (core,)


def free_memory_bytes() -> int:
    """Give the bytes of host memory that this process may still take: its part of what is free."""
    return int(psutil.virtual_memory().available) // share()[1]
