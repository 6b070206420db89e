"""PTX of an unrolled kernel to one cubin: functions assembled side by side by ptxas, then linked by nvlink.

The linked cubin is kept on disk by content (`spmark.impls.runtime.compile.cached`).
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from spmark.impls.core.digest import implementation_version
from spmark.impls.core.errors import CompileError
from spmark.impls.core.machine import allowed_cores, side_by_side
from spmark.impls.lo_spmm.constraints import MOST_REGISTERS
from spmark.impls.lo_spmm.emit_ptx import entry_ptx, function_ptx, head
from spmark.impls.lo_spmm.kernel import NAME, UnrolledKernel
from spmark.impls.runtime.compile import Binary, cached
from spmark.impls.runtime.toolchain import nvcc_version, tool

TIMEOUT_S = 600.0
"""Seconds after which a tool is killed."""
_STEP = 8
_OBJECTS_PER_CORE = 4
"""Several objects, so that all cores end at about the same time."""
_LEAST_INSTRUCTIONS = 1000
"""Least instructions of an object: ptxas starts in the time that it assembles a few hundred (tens of ms)."""
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores")

_LINKED = re.compile(rf"properties for '{NAME}':\s*\n[^\n]*used (\d+) registers.* (\d+) stack", re.MULTILINE)


def assemble(kernel: UnrolledKernel, arch: str, cap: int, workers: int | None = None) -> Binary:
    """Assemble a kernel, or read it from the cache.

    A function that does not fit the cap is assembled again, each time with eight more registers, until nothing is
    spilled. The kernel then needs the registers of its hungriest function (`Binary.registers`).

    Parameters
    ----------
    kernel : UnrolledKernel
        A kernel with at least one tile.
    arch : str
        ``sm_80``, ``sm_90``, ``sm_100``...
    cap : int
        Registers of a thread (`spmark.impls.lo_spmm.constraints.register_cap`).
    workers : int, optional
        Tools that run at once; by default as many as this process may use cores.

    Raises
    ------
    CompileError
        ptxas or nvlink failed, was killed or did not end within `TIMEOUT_S`; the cache is as before.
    DeviceError
        ptxas or nvlink is not installed.
    """
    try:
        return cached(
            cache_key(kernel, arch, cap), lambda: _in_pieces(kernel, arch, cap, workers or len(allowed_cores()))
        )
    except OSError as error:
        said = f"expected room for PTX and objects in {tempfile.gettempdir()}, found {error.strerror}"
        raise CompileError(NAME, "ptxas", said) from error


def cache_key(kernel: UnrolledKernel, arch: str, cap: int) -> str:
    """Give the key that `assemble` keeps a kernel under."""
    words = ("lo_spmm", kernel.digest, arch, str(cap), nvcc_version(), implementation_version(__name__))
    return hashlib.sha256("\0".join(words).encode()).hexdigest()


def _in_pieces(kernel: UnrolledKernel, arch: str, cap: int, workers: int) -> Binary:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        sources = []
        for number, share in enumerate(_shares(kernel, workers * _OBJECTS_PER_CORE)):
            text = head(arch) + "".join(function_ptx(kernel, tile) for tile in share)
            (folder / f"tiles_{number}.ptx").write_text(text)
            sources.append(f"tiles_{number}")
        needed = max(side_by_side(lambda name: _object(folder, name, arch, cap), sources, workers))
        # The entry point must be allowed what the hungriest function uses.
        (folder / "entry.ptx").write_text(entry_ptx(kernel, arch))
        _object(folder, "entry", arch, needed)
        objects = [f"{name}.o" for name in ("entry", *sources)]
        log = _run(folder, "nvlink", f"-arch={arch}", "-v", *objects, "-o", "out.cubin")
        linked = _LINKED.search(log)
        if linked is None:
            raise CompileError(NAME, "nvlink", f"expected the properties of {NAME}, found\n{log}")
        return Binary((folder / "out.cubin").read_bytes(), NAME, int(linked[1]), int(linked[2]), 0)


def _shares(kernel: UnrolledKernel, count: int) -> list[list[int]]:
    """Deal the functions, largest first, to at most ``count`` objects of about as many instructions by turns."""
    loads = np.array([tile.nnz * kernel.cpt + tile.nnc for tile in kernel.tiles])
    count = min(count, len(kernel.tiles), max(1, int(loads.sum()) // _LEAST_INSTRUCTIONS))
    order = np.argsort(-loads, kind="stable").tolist()
    return [order[first::count] for first in range(count)]


def _object(folder: Path, name: str, arch: str, cap: int) -> int:
    """Assemble one relocatable object and give the cap at which nothing is spilled.

    Where even 255 registers are too few, the object is taken with its spills: it is correct, and the binary tells its
    stack.
    """
    limit = f"-maxrregcount={cap}"
    log = _run(folder, "ptxas", "-c", "-v", f"-arch={arch}", limit, f"{name}.ptx", "-o", f"{name}.o")
    spilled = any(int(frame) or int(stored) for frame, stored in _SPILLS.findall(log))
    return _object(folder, name, arch, min(cap + _STEP, MOST_REGISTERS)) if spilled and cap < MOST_REGISTERS else cap


def _run(folder: Path, name: str, *arguments: str) -> str:
    command = [str(tool(name)), *arguments]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise CompileError(NAME, name, f"expected an end within {TIMEOUT_S:g} s, found none") from error
    if done.returncode:
        said = done.stdout + done.stderr
        raise CompileError(NAME, name, f"{name} ended with {done.returncode}\n{said[-4000:]}")
    return done.stdout + done.stderr
