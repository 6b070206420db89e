"""What stands outside of spmark in tests of clusters: certificates, Dask's own programs, Slurm's commands."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from distributed import Security

SBATCH = """#!/bin/sh
# Runs a copy of a job's script at once, in a session that scancel can end.
cp "$1" "{folder}/job-$$.sh"
setsid sh "{folder}/job-$$.sh" >"{folder}/job.log" 2>&1 &
echo "Submitted batch job $!"
"""
SCANCEL = """#!/bin/sh
echo "$1" >>"{folder}/cancelled"
kill -KILL -- "-$1"
"""


def make_certificates(folder: Path) -> dict[str, str]:
    """Write files in PEM of an authority, a certificate and its key."""
    made = Security.temporary()
    texts = {"ca": made.tls_ca_file, "cert": made.tls_worker_cert, "key": made.tls_worker_key}
    for name, text in texts.items():
        (folder / f"{name}.pem").write_text(text)
    return {name: str(folder / f"{name}.pem") for name in texts}


def settings(files: dict[str, str]) -> dict[str, str | bool]:
    """Give Dask's configuration of certificates."""
    pairs = [(role, what) for role in ("scheduler", "worker", "client") for what in ("cert", "key")]
    roles = {f"distributed.comm.tls.{role}.{what}": files[what] for role, what in pairs}
    return roles | {"distributed.comm.tls.ca-file": files["ca"], "distributed.comm.require-encryption": True}


def free_port() -> int:
    with closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def start_scheduler(port: int, files: dict[str, str]) -> subprocess.Popen[bytes]:
    options = ["--protocol", "tls", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
    process = _start("distributed.cli.dask_scheduler", options, files)
    wait_for(lambda: _listens(port))
    return process


def _listens(port: int) -> bool:
    with closing(socket.socket()) as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def start_worker(port: int, files: dict[str, str]) -> subprocess.Popen[bytes]:
    options = [f"tls://127.0.0.1:{port}", "--nthreads", "1", "--no-dashboard", "--preload", "cluster_fakes"]
    return _start("distributed.cli.dask_worker", options, files)


def _start(module: str, options: list[str], files: dict[str, str]) -> subprocess.Popen[bytes]:
    # The HTTP pages have a port of their own, which several schedulers would share.
    command = [sys.executable, "-m", module, *options, "--dashboard-address", "127.0.0.1:0"]
    told = {f"DASK_{key.replace('.', '__').replace('-', '_').upper()}": str(v) for key, v in settings(files).items()}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, env=os.environ | told, start_new_session=True, **quiet)


def fake_slurm(folder: Path) -> None:
    """Write programs called as Slurm's."""
    for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        program = folder / name
        program.write_text(text.replace("{folder}", str(folder)))
        program.chmod(0o755)


def wait_for(done: Callable[[], bool], seconds: float = 40.0) -> None:
    ends = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < ends, "it did not come to pass"
        time.sleep(0.05)
