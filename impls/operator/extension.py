"""Small extensions in C++, compiled by g++ where they are needed and kept by the content of what decides about them."""

from __future__ import annotations

import importlib.util
import logging
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from spmark.impls.core.errors import CompileError, DeviceError
from spmark.impls.runtime.clibrary import compiled_library
from spmark.impls.runtime.toolchain import content

_OPTIONS = ("-x", "c++", "-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w")
"""How g++ is called: it takes a quarter longer for the headers of C++20."""
NOT_BUILT = (CompileError, DeviceError, ImportError, OSError)
"""Why there is no extension: g++ is missing or fails, or what was compiled cannot be loaded."""
_LOG = logging.getLogger("spmark")


def built(source: Path, *versions: str, options: Sequence[str] = (), libraries: Sequence[str] = ()) -> Any:
    """Give the module ``spmark_<stem>`` of a source, compiled or out of the cache.

    Parameters
    ----------
    source : Path
        It includes headers beside it, of Python, of the system, and of what ``options`` name.
    *versions : str
        Of the libraries behind ``options`` and ``libraries``.
    options, libraries : sequence of str
        For g++, before and after the source.

    Raises
    ------
    CompileError
        The source does not compile; carries the log.
    DeviceError
        g++ is not installed.
    ImportError, OSError
        What was compiled cannot be loaded.
    """
    name = f"spmark_{source.stem}"
    given = (*_OPTIONS, f"-iquote{source.parent}", f"-isystem{sysconfig.get_path('include')}", *options)
    facts = (*versions, sys.version, content(source).decode())
    libraries = (*libraries, "-ldl")
    library = compiled_library(source.read_text(), given, source.name, name, *facts, libraries=libraries)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / f"{name}.so"
        made.write_bytes(library)
        spec = importlib.util.spec_from_file_location(name, made)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


class Background:
    """An extension that a thread builds, once in a process.

    Parameters
    ----------
    build : callable
        Gives the module, or raises one of `NOT_BUILT`.
    otherwise : str
        What is done without the extension, for the log.
    """

    def __init__(self, build: Callable[[], Any], otherwise: str) -> None:
        self._build, self._otherwise = build, otherwise
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._module: Any = None

    def found(self) -> Any | None:
        """Give the extension where it is there already; the first call begins to build it."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._otherwise, daemon=True)
                self._thread.start()
        return self._module

    def wait(self) -> Any | None:
        """Give the extension once it is built; None where it cannot be built."""
        self.found()
        assert self._thread is not None
        self._thread.join()
        return self._module

    def _run(self) -> None:
        try:
            self._module = self._build()
        except NOT_BUILT as error:
            _LOG.info("%s: %s", self._otherwise, error)


LAUNCHER = Background(lambda: built(Path(__file__).with_name("launcher.cpp")), "launches are made by Python")
"""The extension that makes a plan's launches; the first process on a machine builds it within two seconds."""
