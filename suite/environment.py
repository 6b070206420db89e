"""What a run ran on: machine, driver, package versions and the commit, for `environments.jsonl`."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from spmark.impls import core
from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import DeviceError
from spmark.impls.core.machine import allowed_cores
from spmark.records.schema import SPARSE_PACKAGE, Environment

PACKAGES = (
    "spmark",
    "numpy",
    "scipy",
    "numba",
    "cupy-cuda13x",
    "cupy-cuda12x",
    "nvidia-cuda-nvrtc",
    SPARSE_PACKAGE,
    "nvidia-cublas",
    "torch",
    "torch-geometric",
    "nvmath-python",
    "dgl",
    "triton",
    "spconv-cu126",
    "spconv-triton",
)
"""Distributions whose version can change a number."""


def collect(device: DeviceSpec, sparse_library: str = "") -> Environment:
    """Describe this machine and its software, with ``device`` as the target.

    Parameters
    ----------
    device : DeviceSpec
    sparse_library : str
        The version or the path of the cuSPARSE that measuring processes are to load, as
        `spmark.impls.runtime.sparse_library.find_sparse_library` takes it.

    Raises
    ------
    DeviceError
        The cuSPARSE that is asked for is not there, or the device is no GPU.
    """
    from spmark.impls.runtime.device import cpu_model, gpu_uuid, versions
    from spmark.impls.runtime.sparse_library import find_sparse_library

    on_gpu = device.kind is DeviceKind.CUDA
    if sparse_library and not on_gpu:
        raise DeviceError(
            f"expected a GPU, on which alone cuSPARSE {sparse_library} runs, found {device.name}: leave it out"
        )
    loaded = find_sparse_library(sparse_library) if on_gpu else None
    driver, cuda = versions(device)
    return Environment(
        device=device,
        driver=driver,
        cuda=cuda,
        packages={"python": platform.python_version()}
        | _installed()
        | ({SPARSE_PACKAGE: loaded.version} if loaded else {}),
        sparse_library=str(loaded.file) if loaded else "",
        cpu=cpu_model(),
        cores=len(allowed_cores()),
        memory_bytes=psutil.virtual_memory().total,
        system=platform.platform(),
        commit=commit(),
        gpu=gpu_uuid(device),
    )


def commit() -> str:
    """Give the commit of the checkout, with ``+`` where tracked files differ; empty where nobody knows."""
    return _commit(_root())


def changes_digest() -> str:
    """Give sixteen hex digits over what is changed in the checkout but not committed; empty where nothing is."""
    return _changes(_root())


def _root() -> Path:
    return Path(core.__path__[0]).parents[1]


def _installed() -> dict[str, str]:
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def _commit(root: Path) -> str:
    """Give the commit of the checkout at ``root``, with ``+`` where tracked files differ.

    Outside of a checkout (a container, a copy) the commit is the hash that ``SPMARK_COMMIT`` holds, or empty.
    """
    if not (root / ".git").exists():
        told = os.environ.get("SPMARK_COMMIT", "")
        return told if is_commit(told.removesuffix("+")) else ""
    try:
        head = _git(root, "rev-parse", "--verify", "--end-of-options", "HEAD")
        changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return ""
    return head + ("+" if changed else "")


def _changes(root: Path) -> str:
    if not (root / ".git").exists():
        return ""
    try:
        changes = _git(root, "diff", "--no-ext-diff", "--binary", "--end-of-options", "HEAD")
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""
    return hashlib.sha256(changes.encode()).hexdigest()[:16] if changes else ""


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()


def is_commit(text: str) -> bool:
    """Tell whether text can be the hash of a commit: 7 to 64 hexadecimal digits in lower case."""
    return re.fullmatch(r"[0-9a-f]{7,64}", text) is not None
