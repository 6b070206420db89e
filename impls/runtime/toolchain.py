"""What compiles kernels: NVRTC's headers, nvcc and ptxas, g++; and what a source is made of, its headers included.

The tools of CUDA are looked for on the path, then by cuda-pathfinder in wheels and toolkits. GCC is the system's own.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from spmark.impls.core.errors import CompileError, DeviceError, how_to_install
from spmark.impls.core.files import Stamp, stamp

INCLUDE = Path(__file__).parent / "include"
"""Our own device headers, included as ``<spmark/...>``."""
_INCLUDED = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
_UNITS: dict[Path, tuple[tuple[Path, ...], tuple[Stamp | None, ...], bytes]] = {}
"""By source: this and each path at which a header was searched (a missing one may appear later), the stamp of each, and
the names and bytes of source and headers. A process reads a few dozen sources."""


@cache
def cuda_include() -> Path | None:
    """Give the folder of ``cuda_fp16.h``, or None where no toolkit and no wheel has it."""
    with suppress(ImportError):
        from cuda.pathfinder import find_nvidia_header_directory

        if folder := find_nvidia_header_directory("cudart"):
            return Path(folder)
    return None


@cache
def tool(name: str) -> Path:
    """Find ``nvcc``, ``ptxas`` or another program of the toolkit.

    Raises
    ------
    DeviceError
        The program is nowhere; the message says what to install.
    """
    found = shutil.which(name)
    with suppress(ImportError):
        from cuda.pathfinder import find_nvidia_binary_utility

        found = found or find_nvidia_binary_utility(name)
    if found is None:
        raise DeviceError(
            f"expected {name} on the path, under CUDA_PATH or in the nvidia-cuda-nvcc wheel, found it nowhere: "
            f"install a CUDA toolkit, or {how_to_install('nvcc')}"
        )
    return Path(found)


@cache
def nvcc_version() -> str:
    """Give nvcc's release line."""
    said = subprocess.run([tool("nvcc"), "--version"], capture_output=True, text=True, check=True).stdout
    return said.strip().splitlines()[-1]


_SECONDS = 300  # a compiler that takes longer does not end


class Gcc(NamedTuple):
    """The compiler g++, which also compiles C."""

    path: str
    version: str
    """Its version line."""
    major: int


@cache
def find_gcc() -> Gcc:
    """Find g++ on PATH.

    Raises
    ------
    DeviceError
        g++ is not installed, or does not work.
    """
    path = shutil.which("g++")
    if path is None:
        raise DeviceError("expected g++ on PATH to compile for the host, found none: install the package g++")
    try:
        version, number = (
            subprocess.run([path, option], capture_output=True, text=True, check=True).stdout.strip()
            for option in ("--version", "-dumpversion")
        )
        major = number.partition(".")[0]
        if version and major.isdecimal():
            return Gcc(path, version.splitlines()[0], int(major))
        found = f"the version {number!r} of {version!r}"
    except subprocess.CalledProcessError as error:
        found = f"exit status {error.returncode} and {(error.stderr or error.stdout).strip()!r}"
    except (OSError, UnicodeDecodeError) as error:
        found = str(error)
    raise DeviceError(
        f"expected the g++ at {path} to work, to compile for the host, found {found}: install the package g++ anew, or "
        "put another g++ before it on PATH"
    )


def gcc_missing() -> str | None:
    """Say why nothing can be compiled for the host, or None."""
    try:
        find_gcc()
    except DeviceError as error:
        return str(error)
    return None


def run_gcc(command: Sequence[str], text: str, source: str, instance: str) -> str:
    """Run the compiler on a text and give its standard output.

    Parameters
    ----------
    command : sequence of str
        The compiler and its options.
    text : str
        Standard input.
    source, instance : str
        What is compiled, for errors.

    Raises
    ------
    CompileError
        The text does not compile, or the compiler takes longer than 300 s; carries the log.
    """
    # Generated declarations cause useless warnings; messages in one language can be tested.
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        return subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=_SECONDS, env=environment, check=True
        ).stdout
    except subprocess.TimeoutExpired as error:
        raise CompileError(source, instance, f"g++ did not finish within {_SECONDS} s") from error
    except subprocess.CalledProcessError as error:
        raise CompileError(source, instance, error.stderr) from error


def included_headers(source: Path) -> tuple[list[Path], tuple[Path, ...]]:
    """Give our own headers that ``source`` includes, directly or through others, sorted, and all paths searched.

    The toolkit's headers are left out: its version stands for them. Files at searched paths may be missing.
    """
    headers: set[Path] = set()
    looked: dict[Path, None] = {}
    pending = [source]
    while pending:
        current = pending.pop()
        for name in _INCLUDED.findall(current.read_text()):
            for folder in (current.parent, INCLUDE):
                path = (folder / name).resolve()
                looked[path] = None
                if path.is_file():
                    if path not in headers:
                        headers.add(path)
                        pending.append(path)
                    break
    return sorted(headers), tuple(looked)


def content(source: Path) -> bytes:
    """Give the names and bytes of a source and of its headers; files are searched again only where one has changed.

    A search costs a millisecond, as much as the other steps of loading a kernel from the cache together.
    """
    if source in _UNITS:
        files, stamps, text = _UNITS[source]
        if stamps == tuple(map(stamp, files)):
            return text
    headers, looked_at = included_headers(source)
    files = (source, *looked_at)
    stamps = tuple(map(stamp, files))  # taken before the files are read: a change in between is noticed
    text = b"".join(b"\0" + path.name.encode() + b"\0" + path.read_bytes() for path in (source, *headers))
    _UNITS[source] = files, stamps, text
    return text
