"""Whether the system killed a process for want of memory, told from the kernel's own counts.

SIGKILL says nothing of who sent it. The kernel counts its out-of-memory kills for each control group (cgroup) and for
the machine; a child belongs to the runner's group.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


def oom_kills(root: Path = Path("/")) -> int | None:
    """Count the processes that were killed for want of memory in this process's control group.

    Parameters
    ----------
    root : Path
        Folder that holds ``proc`` and ``sys``.

    Returns
    -------
    int or None
        Of the group, by version 2 of the interface or version 1; of the whole machine where groups have no count; None
        where the system has neither.
    """
    for path in _counts(root):
        with suppress(OSError):
            if count := _COUNT.search(path.read_text()):
                return int(count[1])
    return None


def _counts(root: Path) -> Iterator[Path]:
    mounted = root / "sys/fs/cgroup"
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            inside = group.strip("/")
            if not controllers:
                yield from (top / inside / "memory.events" for top in (mounted, mounted / "unified"))
            elif "memory" in controllers.split(","):
                # A container sees its own group at the top, under the name that it has outside.
                yield from (mounted / "memory" / name / "memory.oom_control" for name in (inside, ""))
    yield root / "proc/vmstat"
