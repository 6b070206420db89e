"""Generated C for the host's cores: compiled for this CPU with OpenMP, kept on disk, and loaded into the process."""

from __future__ import annotations

import ctypes
import hashlib
import platform
import tempfile
from functools import cache
from pathlib import Path

from spmark.impls.core.files import cache_folder, read_sealed, write_sealed
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
    words = (text, find_gcc().version, _cpu(), *OPTIONS)
    key = hashlib.sha256("\0".join(words).encode()).hexdigest()
    place = cache_folder() / key[:2] / key
    library = read_sealed(place)
    if library is None:
        library = _compiled(text, name)
        write_sealed(place, library)
    return _loaded(library)


def _compiled(text: str, name: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "library.so"
        run_gcc([find_gcc().path, *OPTIONS, "-", "-o", str(made)], text, "generated C", name)
        return made.read_bytes()


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
