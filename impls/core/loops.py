"""The one way in which loops are compiled, and where their machine code is kept between processes.

Numba checks a kept loop against the file that it stands in, and not against the files of what it calls. Machine code
therefore lies in a folder whose name covers every module that holds loops, with the compiler and the CPU. A loop is
kept only where the modules are still those that this process loaded.

Importing this module imports Numba, which takes long, so only modules of loops import it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Self, cast

import llvmlite
import numba
import numpy as np
from llvmlite import binding
from numba import njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator

from spmark.impls.core.digest import SOURCES
from spmark.impls.core.files import cache_root, private

_HOW: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
_NAMES = b"spmark.impls.core.loops"
"""A text that stands in every module with loops, since such a module imports this one."""
_NOT_CODE = ("NUMBA_CACHE_DIR", "NUMBA_NUM_THREADS", "NUMBA_THREADING_LAYER")
"""Settings of Numba that leave the machine code of these loops as it is."""
_KEY = re.compile("[0-9a-f]{16}")
_MOST_FOLDERS = 16
"""Folders that are kept: those that were used last."""
_log = logging.getLogger(__name__)


def compiled(*signature: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile for one signature now, or read the machine code that an earlier process kept.

    Parameters
    ----------
    *signature
        Numba's type of the result, then the types of the arguments.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        result, *arguments = signature
        loop = njit(**_HOW)(function)
        if numba.config.DISABLE_JIT:
            return cast("Callable[..., Any]", loop)
        with suppress(RuntimeError):  # Numba raises it where nothing can be kept: this process compiles for itself
            loop._cache = _Cache(function)
        loop.compile(result(*arguments))
        loop.disable_compile()
        return cast("Callable[..., Any]", loop)

    return decorate


def part(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile as part of the loops that call it."""
    return cast("Callable[..., Any]", njit(**_HOW)(function))


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile into the code of every caller."""
    return cast("Callable[..., Any]", njit(inline="always", **_HOW)(function))


@cache
def modules() -> frozenset[Path]:
    """Give the files of every module that holds loops."""
    return frozenset(path for path in SOURCES.files() if path.suffix == ".py" and _NAMES in path.read_bytes())


@cache
def folder() -> Path:
    """Give the folder of this process's machine code; the first call makes the folder and removes old ones.

    The folder lies where ``NUMBA_CACHE_DIR`` says, or in the project's cache.
    """
    given = numba.config.CACHE_DIR
    above = private((private(Path(given) / "spmark") if given else cache_root()) / "loops")
    own = private(above / _key())
    with suppress(OSError):
        fresh = not any(own.iterdir())
        os.utime(own)
        if fresh:
            _remove_old(own)
    return own


def _key() -> str:
    """Give sixteen hex digits over everything that the machine code of a loop depends on."""
    digest = hashlib.sha256()
    for path in sorted(modules()):
        digest.update(f"{path.name}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    settings = sorted(f"{k}={v}" for k, v in os.environ.items() if k.startswith("NUMBA_") and k not in _NOT_CODE)
    words = (
        sys.implementation.cache_tag,
        numba.__version__,
        llvmlite.__version__,
        np.__version__,
        binding.get_host_cpu_name(),
        binding.get_host_cpu_features().flatten(),
        *settings,
    )
    digest.update("\0".join(words).encode())
    return digest.hexdigest()[:16]


def _remove_old(own: Path) -> None:
    """Remove all but the folders that were used last; a process that still uses a removed folder compiles again."""
    others = [path for path in own.parent.iterdir() if path != own and _KEY.fullmatch(path.name)]
    for path in sorted(others, key=lambda path: path.stat().st_mtime, reverse=True)[_MOST_FOLDERS - 1 :]:
        shutil.rmtree(path, ignore_errors=True)


class _Place(_CacheLocator):  # type: ignore[misc]
    """Tells Numba where one loop is kept."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        self._py_file, self._line = file, function.__code__.co_firstlineno
        self._module = function.__module__

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> Self | None:
        """Give the place, or None where the loop is not kept, since its code or its folder may have changed."""
        if Path(file) not in modules() or SOURCES.changed(modules()):
            _log.info("%s: %s is compiled for this process only", file, function.__name__)
            return None
        place = cls(function, file)
        try:
            place.ensure_cache_path()
        except OSError as error:
            _log.info("%s: compiled loops cannot be kept: %s", folder(), error)
            return None
        return place

    def get_cache_path(self) -> str:
        """Give the folder of all loops."""
        return str(folder())

    def get_source_stamp(self) -> str:
        """Give what Numba compares: the folder's name covers the sources."""
        return folder().name

    def get_disambiguator(self) -> str:
        """Tell functions of one name apart: files of one name stand in several packages."""
        return f"{self._module}-{self._line}"


class _PlacedHere(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_Place,)


class _Cache(FunctionCache):  # type: ignore[misc]
    """Numba's cache in this project's folder; a file that cannot be read or written costs time only."""

    _impl_class = _PlacedHere

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        if not isinstance(self._impl.locator, _Place):
            raise RuntimeError("expected the project's own place, found one of NUMBA_CACHE_LOCATOR_CLASSES")

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Give the machine code, or None where no file of it can be read."""
        try:
            return super().load_overload(signature, target)
        except Exception as error:  # what a damaged pickle raises has no common type
            _log.warning("%s: a compiled loop cannot be read and is compiled again: %r", self.cache_path, error)
            with suppress(OSError):
                self.flush()
            return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Keep the machine code where the folder can be written."""
        try:
            super().save_overload(signature, compiled)
        except OSError as error:
            _log.warning("%s: a compiled loop cannot be kept: %r", self.cache_path, error)
