"""The one way in which loops are compiled, and where their machine code is kept between processes.

Numba checks a kept loop against the file that it stands in, and not against the files of what it calls. Machine code is
therefore kept under the version of the loop's module (`spmark.impls.core.digest`), which covers those, too.

Importing this module imports Numba, which takes long, so only modules of loops import it.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, Self, cast

import numba
import numpy as np
from numba import njit, types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.core.registry import CPUDispatcher

from spmark.impls.core.digest import implementation_version
from spmark.impls.core.files import cache_root, keep_latest, private
from spmark.impls.core.machine import allowed_cores

_HOW: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
_MOST_BYTES = 64 << 20
"""Of all kept loops, which take some 3 MiB for one state of the code; those that were written last stay."""
_CORES = 4
"""Cores from which on a loop that is not kept is compiled by a process of its own, beside the others: a first process
needs 20 s of one core for the loops of a search, and the longest takes a third of that."""
_ONE = "SPMARK_LOOP"
"""Environment variable of such a process: the name of its loop."""
_log = logging.getLogger(__name__)

LONG = types.int64
IN, LONGS_IN, BYTES_IN = (types.Array(kind, 1, "C", readonly=True) for kind in (types.int32, LONG, types.uint8))
"""Types of arguments: a number, and arrays that a loop reads."""


def compiled(*signature: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile for one signature, or read the machine code that an earlier process kept.

    Where there are several cores, a process is started that compiles, and the first call of the loop waits for it.

    Parameters
    ----------
    *signature
        Numba's type of the result, then the types of the arguments.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        loop, one = njit(**_HOW)(function), os.environ.get(_ONE)
        if numba.config.DISABLE_JIT or one not in (None, function.__name__):
            return cast("Callable[..., Any]", loop)
        try:
            loop._cache = _Cache(function)
            if one is None and len(allowed_cores()) >= _CORES and not loop._cache.is_kept():
                return _Elsewhere(loop, signature)
        except OSError as error:  # this process compiles for itself
            _log.info("compiled loops cannot be kept: %s", error)
        return _made(loop, signature)

    return decorate


def _made(loop: Any, signature: Sequence[Any]) -> Callable[..., Any]:
    result, *arguments = signature
    loop.compile(result(*arguments))
    loop.disable_compile()
    return cast("Callable[..., Any]", loop)


class _Elsewhere:
    """A loop that another process compiles and keeps; its first call reads that, or compiles where there is none."""

    def __init__(self, loop: Any, signature: Sequence[Any]) -> None:
        self._loop, self._signature, self._lock = loop, signature, Lock()
        function = loop.py_func
        program = "import importlib, sys; importlib.import_module(sys.argv[1])"
        self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
            [sys.executable, "-P", "-c", program, function.__module__],
            env={**os.environ, _ONE: function.__name__},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def __call__(self, *arguments: Any) -> Any:
        return self._ready()(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ready(), name)

    def _ready(self) -> Any:
        with self._lock:
            if self._process is not None:
                self._process.wait()
                _made(self._loop, self._signature)
                self._process = None
        return self._loop


class _Part(CPUDispatcher):  # type: ignore[misc]
    """What loops call. Python runs its source: to compile an entry from Python takes a third of the time."""

    def __call__(self, *arguments: Any) -> Any:
        return self.py_func(*arguments)


def part(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile as part of the loops that call it."""
    how = {"nopython": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, **_HOW}
    return function if numba.config.DISABLE_JIT else _Part(function, targetoptions=how)


class _Place(_CacheLocator):  # type: ignore[misc]
    """Tells Numba where one loop is kept: where ``NUMBA_CACHE_DIR`` says, or in the project's cache."""

    def __init__(self, function: Callable[..., Any]) -> None:
        line, version = function.__code__.co_firstlineno, implementation_version(function.__module__)
        self._name = f"{function.__module__}-{line}-{version}"

    @classmethod
    def from_function(cls, function: Callable[..., Any], _file: str) -> Self:
        """Give the place; raises OSError where nothing can be written."""
        place = cls(function)
        place.ensure_cache_path()
        return place

    def get_cache_path(self) -> str:
        """Give the folder of all loops."""
        given = numba.config.CACHE_DIR
        return str(private((private(Path(given) / "spmark") if given else cache_root()) / "loops"))

    def get_source_stamp(self) -> str:
        """Give what Numba compares beside its own version and the CPU."""
        return str(np.__version__)

    def get_disambiguator(self) -> str:
        """Tell functions of one name, and versions of one function, apart."""
        return self._name


class _PlacedHere(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_Place,)


class _Cache(FunctionCache):  # type: ignore[misc]
    """Numba's cache in this project's folder; a file that cannot be read or written costs time only."""

    _impl_class = _PlacedHere

    def is_kept(self) -> bool:
        """Tell whether a process has kept machine code for this version of the loop."""
        return Path(self._cache_file._index_path).exists()

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
            keep_latest(Path(self.cache_path), _MOST_BYTES)
        except OSError as error:
            _log.warning("%s: a compiled loop cannot be kept: %r", self.cache_path, error)
