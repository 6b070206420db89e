"""Shared libraries by g++, kept on disk; and generated C, compiled for this CPU with OpenMP and loaded from one."""

from __future__ import annotations

import ctypes
import hashlib
import platform
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from spmark.impls.core.files import cache_root, read_sealed, write_sealed
from spmark.impls.runtime.toolchain import find_gcc, run_gcc

OPTIONS = (
    *("-x", "c", "-std=gnu11", "-O3", "-march=native", "-fopenmp", "-fPIC", "-shared"),
    # Sums may be taken in any order and fused with products, and NaN and infinity stay: as for numba_cpu's loops.
    *("-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math"),
    "-funroll-loops",
    # GCC takes the widest vectors, which a row of 32 floats fills only twice.
    *(("-mprefer-vector-width=256",) if platform.machine() in ("x86_64", "AMD64") else ()),
)
"""How C is compiled for this CPU."""


def load_c(text: str, name: str) -> ctypes.CDLL:
    """Compile a C source, or read the machine code from the cache, and load it.

    The cache's entry is sealed, so that a damaged library is compiled again and never loaded. A process loads one
    library once, however often it asks.

    Parameters
    ----------
    text : str
        The source; it includes headers of the system only.
    name : str
        Names the source in errors.

    Raises
    ------
    CompileError
        The source does not compile; carries the log.
    DeviceError
        g++ is not installed.
    """
    return _loaded(compiled_library(text, OPTIONS, "generated C", name, _cpu()))


def compiled_library(
    text: str, options: Sequence[str], source: str, instance: str, *facts: str, libraries: Sequence[str] = ()
) -> bytes:
    """Compile a text by g++ to a shared library, or read the library from the cache.

    Parameters
    ----------
    text : str
        The source.
    options, libraries : sequence of str
        For g++, before and after the source.
    source, instance : str
        What is compiled, for errors.
    *facts : str
        What else the library depends on, beside these and the compiler's version.

    Raises
    ------
    CompileError
        The source does not compile; carries the log.
    DeviceError
        g++ is not installed.
    """
    gcc = find_gcc()
    words = (text, gcc.version, *options, *libraries, *facts)
    place = cache_root() / "native" / hashlib.sha256("\0".join(words).encode()).hexdigest()
    library = read_sealed(place)
    if library is None:
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / "library.so"
            run_gcc([gcc.path, *options, "-", "-o", str(made), *libraries], text, source, instance)
            library = made.read_bytes()
        write_sealed(place, library)
    return library


@cache
def _cpu() -> str:
    """Give all options that ``-march=native`` stands for on this CPU."""
    return run_gcc([find_gcc().path, "-march=native", "-Q", "--help=target"], "", "the options of this CPU", "g++")


@cache
def _loaded(library: bytes) -> ctypes.CDLL:
    """Load a library from a file that lives for the time of loading."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "library.so"
        path.write_bytes(library)
        return ctypes.CDLL(str(path))
