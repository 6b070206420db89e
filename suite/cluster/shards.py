"""Commands whose work comes in shards, ``study label`` and ``study collect``: each worker of a cluster runs one shard.

A worker runs the command itself in a process that ends with it. The shard's file is written by this process alone, into
the folder of the command, which all machines see under one path.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from spmark.impls.core.errors import DeviceError
from spmark.suite.cluster.gather import Cluster
from spmark.suite.cluster.work import cancelled

_OWN = ("--gpus", "--scheduler", "--cluster", "--shard", "--out")
"""Options, each with a value, that a shard's command has not, or has with a value of its own."""
_TIED = (
    "import sys; from spmark.suite.run.worker_main import tie; tie(int(sys.argv.pop(1))); "
    "from spmark.suite.cli.main import main; main()"
)
_DONE, _LEFT = 0, 1
"""Exit codes of a shard that is done, and of one that has work left after the budget."""
_LOOK_S = 0.2


def run_shards(cluster: Cluster, words: Sequence[str], out: Path) -> list[dict[str, Any]]:
    """Run a command shard by shard, and give the JSON answer of each.

    Parameters
    ----------
    cluster : Cluster
        As many workers as there are now make as many shards.
    words : sequence of str
        The command line after the program.
    out : Path
        The command's folder.

    Raises
    ------
    DeviceError
        A shard has failed; tells what it said last.
    """
    client = cluster.client
    count = len(client.nthreads())
    common = [*_without_own(words), "--json", "--out", str(out.absolute())]
    commands = [[*common, "--shard", f"{number}/{count}"] for number in range(1, count + 1)]
    futures = [client.submit(run_command, command, str(Path.cwd()), pure=False) for command in commands]
    try:
        ended = client.gather(futures)
    finally:
        client.cancel(futures)
    for code, _, said in ended:
        if code not in (_DONE, _LEFT):
            raise DeviceError(f"expected each shard to end, found one with exit code {code}: {said.strip()}")
    return [json.loads(answer) for _, answer, _ in ended]


def _without_own(words: Sequence[str]) -> Iterator[str]:
    rest = iter(words)
    for word in rest:
        if word in _OWN:
            next(rest, None)
        elif word != "--json" and word.partition("=")[0] not in _OWN:
            yield word


def run_command(words: Sequence[str], folder: str) -> tuple[int, str, str]:
    """Run spmark with these words in a folder, and give its exit code, standard output and last errors: a task."""
    from distributed import get_worker

    worker = get_worker()
    task = worker.get_current_task()
    command = [sys.executable, "-P", "-c", _TIED, str(os.getpid()), *words]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        # A session of its own: with the process end what it has started.
        process = subprocess.Popen(command, stdout=out, stderr=errors, cwd=folder, start_new_session=True)
        while process.poll() is None:
            if cancelled(worker, task):
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            time.sleep(_LOOK_S)
        out.seek(0)
        errors.seek(0)
        return process.returncode, out.read(), errors.read()[-2000:]
