"""The kernel's counts of what it killed for want of memory, in the places where systems keep them."""

from __future__ import annotations

from pathlib import Path

import pytest

from spmark.suite.run.oom import oom_kills

V1 = "4:memory:/outer/inner\n3:cpu,cpuacct:/\n0::/\n"


@pytest.fixture
def system(tmp_path):
    """Write files below a root; gives the root."""

    def system(files: dict[str, str]) -> Path:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return tmp_path

    return system


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({"proc/self/cgroup": "0::/user/a\n", "sys/fs/cgroup/user/a/memory.events": "max 4\noom 3\noom_kill 2\n"}, 2),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.events": "oom_kill 1\noom_group_kill 7\n"}, 1),
        (
            {
                "proc/self/cgroup": V1,
                "sys/fs/cgroup/memory/outer/inner/memory.oom_control": "under_oom 0\noom_kill 5\n",
            },
            5,
        ),
        ({"proc/self/cgroup": V1, "sys/fs/cgroup/memory/memory.oom_control": "under_oom 0\noom_kill 6\n"}, 6),
        ({"proc/self/cgroup": "0::/\n", "proc/vmstat": "pgfault 11\noom_kill 9\n"}, 9),
        ({"proc/vmstat": "oom_kill 8\n"}, 8),
        ({"proc/self/cgroup": "0::/\n"}, None),
        ({}, None),
    ],
)
def test_the_count_of_the_nearest_group(system, files, count):
    assert oom_kills(system(files)) == count
