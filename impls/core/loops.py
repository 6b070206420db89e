"""The one way in which loops are compiled, and where their machine code is kept between processes.

Numba checks a kept loop against the file that it stands in, and not against the files of what it calls. Machine code is
therefore kept under the version of the loop's module (`spmark.impls.core.digest`), which covers those, too.

Importing this module imports Numba, which takes long, so only modules of loops import it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, cast

import numba
import numpy as np
from numba import njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator

from spmark.impls.core.digest import implementation_version
from spmark.impls.core.files import cache_root, keep_latest, private

_HOW: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
_MOST_BYTES = 64 << 20
"""Of all kept loops, which take some 3 MiB for one state of the code; those that were written last stay."""
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
        if not numba.config.DISABLE_JIT:
            try:
                loop._cache = _Cache(function)
            except OSError as error:  # this process compiles for itself
                _log.info("compiled loops cannot be kept: %s", error)
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
