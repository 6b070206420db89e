"""Readers with one fault each, for the test of the harness itself."""

from __future__ import annotations

import ctypes
import os
import pickle
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from fuzz.harness import Target

from spmark.impls.core.errors import DatasetError


def _raise() -> None:
    raise KeyError("x")


def _exit() -> None:
    raise SystemExit(3)


def _swallowed_write() -> None:
    try:
        Path("../../escaped").write_text("x")
    except BaseException as error:  # what a reader catches is seen all the same
        raise DatasetError("x") from error


def _memory() -> None:
    try:
        np.ones(1 << 30)
    except MemoryError as error:
        raise DatasetError("x") from error


def _slow() -> None:
    began = time.process_time()
    while time.process_time() - began < 0.3:
        pass


FAULTS: dict[str, tuple[Callable[[], object], str]] = {
    "foreign": (_raise, "exception"),
    "exit": (_exit, "exception"),
    "segmentation": (lambda: ctypes.string_at(0), "death"),
    "abort": (os.abort, "death"),
    "write": (lambda: Path("../escaped").write_text("x"), "trespass"),
    "swallowed_write": (_swallowed_write, "trespass"),
    "folder": (lambda: Path("/escaped").mkdir(), "trespass"),
    "command": (lambda: subprocess.run(["true"]), "trespass"),
    "unpickle": (lambda: pickle.loads(pickle.dumps(Path("x"))), "trespass"),
    "temporary": (tempfile.mkstemp, "left behind"),
    "memory": (_memory, "memory"),
    "slow": (_slow, "slow"),
}


def _target(name: str, act: Callable[[], object], commands: bool = False) -> Target:
    calls = iter(("good",))

    def read(data: bytes, folder: Path) -> object:
        return next(calls, None) or act()

    return Target(name, read, lambda: [b"good"], commands=commands, limit_s=0.2)


def _refuse() -> None:
    raise DatasetError("x")


TARGETS = (
    *(_target(name, act) for name, (act, _) in FAULTS.items()),
    _target("command_that_writes", lambda: subprocess.run(["touch", "../escaped"], check=True), commands=True),
    Target("refuses_all", lambda data, folder: _refuse(), lambda: [b"good"]),
)
