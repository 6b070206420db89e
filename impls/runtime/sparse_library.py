"""Which cuSPARSE a process uses: all versions have one file name, and the first that a process loads serves it all.

CuPy, PyTorch and spmark ask the system for ``libcusparse.so.12``, and get what bears this name in the process already.
So a process that measures loads the chosen file before anything else is imported (`load_sparse_library`). What a file
is, a process of its own tells: this one may want another (`find_sparse_library`).
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from spmark.impls.core.errors import DeviceError
from spmark.impls.core.files import at_home, cache_root

_NAME = "libcusparse.so"
_PLACES = ("", "lib*", "nvidia/*/lib")
"""Where a folder, a toolkit and a folder of installed packages hold the library."""
_VERSION = re.compile(r"\d+(\.\d+)*")


class SparseLibrary(NamedTuple):
    """A cuSPARSE of this machine."""

    file: Path
    """Without links, as `loaded_files` tells it."""
    version: str
    """``12.6.3.3`` where the file's name or its package says so much, else the library's own ``12.6.3``."""


def find_sparse_library(asked: str = "") -> SparseLibrary | None:
    """Find the cuSPARSE that is asked for, without loading it into this process.

    Parameters
    ----------
    asked : str
        A version or its beginning (``12.9``), of which the newest is taken; or the library's file, or a folder that
        holds it; or nothing, for the one that a process finds by itself.

    Returns
    -------
    SparseLibrary or None
        None where nothing is asked for and no cuSPARSE is installed.

    Raises
    ------
    DeviceError
        What is asked for is not there or does not load; says what was found and what to do.
    """
    if not asked:
        found = _told()
        return None if isinstance(found, str) else found
    if not _VERSION.fullmatch(asked):
        return _at(asked)
    here = [one for file in _installed() if not isinstance(one := _told(file), str)]
    if fitting := [one for one in here if f"{one.version}.".startswith(f"{asked}.")]:
        return max(fitting, key=lambda one: [*map(int, one.version.split("."))])
    raise DeviceError(
        f"expected a cuSPARSE of version {asked}, found "
        f"{', '.join(f'{one.version} ({one.file})' for one in here) or 'none'}: install it beside them, pip install "
        f"--no-deps --target {cache_root() / 'cusparse' / asked} 'nvidia-cusparse=={asked}.*', or name the library's "
        "file or folder"
    )


def _at(asked: str) -> SparseLibrary:
    given = at_home(asked)
    files = [given.resolve()] if given.is_file() else list(dict.fromkeys(_files(given)))
    if len(files) != 1:
        found = " and ".join(map(str, files)) or "none"
        raise DeviceError(f"expected a version, or one {_NAME} at {asked}, found {found}: name the library's file")
    told = _told(files[0])
    if isinstance(told, str):
        raise DeviceError(f"{files[0]}: expected a cuSPARSE that loads, found: {told}; name another file")
    return told


def _told(file: Path | str = "") -> SparseLibrary | str:
    """Ask a process of its own, which loads a file, or without one what it finds; why it does not load otherwise."""
    command = [sys.executable, "-P", __file__, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    path, version = done.stdout.splitlines()
    return SparseLibrary(Path(path), _longest(Path(path), version))


def _longest(file: Path, version: str) -> str:
    """Give the version with the number of the build, where the file's name or its package has it."""
    packages = [info for parent in file.parents for info in parent.glob("nvidia_cusparse*.dist-info")]
    longer = [file.name.removeprefix(f"{_NAME}."), *(info.stem.rpartition("-")[2] for info in packages)]
    return next((one for one in longer if one.startswith(f"{version}.") and _VERSION.fullmatch(one)), version)


def _installed() -> Iterator[Path]:
    """List the files of every cuSPARSE in the usual places: packages, spmark's cache, toolkits."""
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    libraries = filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep))
    caches, toolkits = (cache_root() / "cusparse").glob("*"), Path("/usr/local").glob("cuda*")
    folders: list[str | Path] = [*filter(None, sys.path), *caches, *homes, *toolkits, *libraries]
    yield from dict.fromkeys(file for folder in folders for file in _files(Path(folder)))


def _files(folder: Path) -> Iterator[Path]:
    for place in _PLACES:
        yield from (file.resolve() for file in sorted(folder.glob(f"{place}/{_NAME}.*".lstrip("/"))))


def load_sparse_library(file: Path) -> None:
    """Make a file the cuSPARSE of this process: to be called before CuPy or PyTorch is imported.

    Raises
    ------
    DeviceError
        The file does not load, or another cuSPARSE is loaded already.
    """
    try:
        _opened(file)
    except OSError as error:
        raise DeviceError(f"{file}: expected a cuSPARSE that loads, found: {error}") from error
    check_sparse_library(file)


def check_sparse_library(file: Path) -> None:
    """Refuse a process that has loaded another cuSPARSE than a file, beside it or in its place.

    Raises
    ------
    DeviceError
        Names the files that are loaded.
    """
    if (loaded := loaded_files()) != [file]:
        found = " and ".join(map(str, loaded)) or "none"
        raise DeviceError(
            f"expected {file} as the only cuSPARSE of this process, found {found}: what loads the other has to be "
            "imported later, or to use the one that is loaded"
        )


def loaded_files() -> list[Path]:
    """List the files of cuSPARSE that this process has loaded, as the system tells."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape")
    paths = dict.fromkeys(line.split(maxsplit=5)[-1] for line in maps.splitlines() if f"/{_NAME}" in line)
    return [Path(path) for path in paths]


def _opened(file: Path | str) -> ctypes.CDLL:
    from cuda.pathfinder import load_nvidia_dynamic_lib

    with suppress(RuntimeError):  # a file beside which it does not lie wants it, too
        load_nvidia_dynamic_lib("nvJitLink")
    return ctypes.CDLL(str(file or load_nvidia_dynamic_lib("cusparse").abs_path))


def _tell(file: str) -> None:
    """Load a file, or without one what a process finds by itself, and print its path and its version."""
    library, number, version = _opened(file), ctypes.c_int(), []
    for part in range(3):
        library.cusparseGetProperty(part, ctypes.byref(number))
        version.append(str(number.value))
    if file:
        check_sparse_library(Path(file))
    sys.stdout.write(f"{loaded_files()[0]}\n{'.'.join(version)}\n")


if __name__ == "__main__":
    _tell(sys.argv[1])
