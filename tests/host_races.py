"""The race detector of the host ring (``runtime/host/detector``): linked to kernels, and told of grids that overlap."""

from __future__ import annotations

import os
import struct
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from spmark.impls.core.files import cache_folder, whole
from spmark.impls.runtime.host import ring
from spmark.impls.runtime.host.ring import Argument, HostKernel, launch_host
from spmark.impls.runtime.toolchain import find_gcc

FOLDER = Path(__file__).parent / "runtime/host/detector"
RING = Path(ring.__file__).parent
HOOKED = (
    "--param=asan-instrumentation-with-call-threshold=0",
    *(f"-Wl,--wrap=__asan_{kind}{size}" for kind in ("load", "store") for size in ("2", "4", "8", "16", "N")),
)
"""A kernel calls AddressSanitizer for every access, and the linker leads these calls through hooks.cpp."""

Pieces = tuple[tuple[int, int], ...]
"""Pieces of an array: start and length of each, in bytes."""


@dataclass(frozen=True, eq=False)
class Accesses:
    """The bytes of an array that a grid read and wrote; an array that the kernel takes as const counts as read."""

    array: NDArray[Any]
    read: Pieces
    written: Pieces

    def seen_by(self, other: NDArray[Any]) -> tuple[Pieces, Pieces]:
        """Give the pieces of ``other``, which may share memory with the array, that were read and written."""
        shift = self.array.ctypes.data - other.ctypes.data
        clipped = []
        for pieces in (self.read, self.written):
            bounds = ((max(start + shift, 0), min(start + shift + size, other.nbytes)) for start, size in pieces)
            clipped.append(tuple((start, stop - start) for start, stop in bounds if start < stop))
        return clipped[0], clipped[1]


def watched_launch(
    executable: Path,
    instance: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    shared_bytes: int,
    args: Sequence[Argument],
    before: Sequence[Accesses] = (),
) -> tuple[list[Accesses], bool]:
    """Run a kernel as `launch_host`; give its accesses, and whether a thread waited for the grids before.

    A thread has to wait for the grids of ``before``, which may still run, before it touches what they have touched.
    """
    told = b""
    for argument in args:
        if isinstance(argument, np.ndarray):
            seen = [one.seen_by(argument) for one in before]
            told += b"".join(packed([piece for pieces in kind for piece in pieces]) for kind in zip(*seen, strict=True))
            told += b"" if seen else packed([]) * 2
    with TemporaryDirectory() as folder, LAUNCHING:
        file = Path(folder) / "accesses"
        file.write_bytes(told)
        with patch.dict(os.environ, {"SPMARK_HOST_ACCESSES": str(file)}):
            launch_host(executable, instance, grid, block, shared_bytes, args)
        told = file.read_bytes()
    at, accesses = 0, []
    for argument in args:
        if isinstance(argument, np.ndarray):
            read, at = unpacked(told, at)
            written, at = unpacked(told, at)
            accesses.append(Accesses(argument, read, written))
    return accesses, bool(told[at])


def packed(pieces: Sequence[tuple[int, int]]) -> bytes:
    return struct.pack(f"={1 + 2 * len(pieces)}Q", len(pieces), *(number for piece in pieces for number in piece))


def unpacked(told: bytes, at: int) -> tuple[Pieces, int]:
    """Give the pieces that are packed at an offset, and the offset after them."""
    (count,) = struct.unpack_from("=Q", told, at)
    numbers = struct.unpack_from(f"={2 * count}Q", told, at + 8)
    return tuple(zip(numbers[::2], numbers[1::2], strict=True)), at + 8 + 16 * count


LAUNCHING = threading.Lock()
"""Held while the environment names the file of one launch."""


class Stream(threading.local):
    """The accesses of the grids that the next grid of a thread may overlap with."""

    before: Sequence[Accesses] = ()


STREAM = Stream()


def launch(
    kernel: HostKernel, grid: tuple[int, int, int], args: Sequence[Any], shared_bytes: int = 0, overlap: bool = False
) -> None:
    """Stand for `HostKernel.launch`."""
    if not all(grid):
        return
    block, before = (kernel.instance.threads, 1, 1), STREAM.before if overlap else ()
    accesses, waited = watched_launch(
        kernel.executable, kernel.instance.expression, grid, block, shared_bytes, args, before
    )
    # A grid that does not wait may end before its predecessor: the next grid overlaps with both.
    STREAM.before = accesses if waited else [*before, *accesses]


@contextmanager
def watched() -> Iterator[None]:
    """Watch the launches of all kernels that are compiled inside."""
    with patch.object(ring, "MORE_OPTIONS", (*HOOKED, *objects())), patch.object(HostKernel, "launch", launch):
        yield


@cache
def objects() -> tuple[str, ...]:
    """Compile the detector once for a cache, fast and without sanitizers: it runs at every access."""
    made = []
    sources = sorted(FOLDER.glob("*.cpp"))
    texts = b"\0".join(path.read_bytes() for path in (*sources, *sorted(RING.glob("*.hpp"))))
    key = sha256(texts + find_gcc().version.encode()).hexdigest()[:24]
    cache_folder().mkdir(parents=True, exist_ok=True)
    with FileLock(cache_folder() / f".detector-{key}.lock"):
        for source in sources:
            made.append(cache_folder() / f"{source.stem}-{key}.o")
            if not made[-1].is_file():
                with whole(made[-1]) as part:
                    command = [find_gcc().path, "-std=c++17", "-O2", "-g1", f"-I{RING}", "-c", source, "-o", part]
                    subprocess.run(command, check=True)
    return tuple(map(str, made))
