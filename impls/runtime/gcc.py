"""The system's own compiler, GCC: where it is, and how a text is compiled by it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from spmark.impls.core.errors import CompileError, DeviceError

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
