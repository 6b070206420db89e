"""Runs on one GPU take turns, so that two of them at the same time do not disturb each other's times."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.files import cache_root, path_component
from spmark.impls.runtime.lab import Lab

_POLL_S = 0.002
_log = logging.getLogger(__name__)


def turn_file(device: DeviceSpec, lab: Lab) -> Path | None:
    """Give the file that whoever measures on a device holds a lock of; None where devices are shared as they are.

    A GPU goes by its place on the bus, since its number depends on ``CUDA_VISIBLE_DEVICES``. Only processes of one user
    share the file.
    """
    if device.kind is not DeviceKind.CUDA:
        return None
    return cache_root() / "turns" / f"{path_component(lab.xp.cuda.Device().pci_bus_id)}.lock"


@contextmanager
def turn(file: Path | None, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock of a device inside of the block.

    Parameters
    ----------
    file : Path or None
        From `turn_file`. Where the file cannot be made, a warning says so and the block goes on without a lock.
    on_wait : callable
        Called once, before the first wait, where another process holds the lock.
    """
    lock = _acquired(file, on_wait) if file else None
    try:
        yield
    finally:
        if lock:
            lock.release()


def _acquired(file: Path, on_wait: Callable[[], None]) -> FileLock | None:
    lock = FileLock(file)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            on_wait()
            lock.acquire(poll_interval=_POLL_S)
    except OSError as error:
        _log.warning("%s: no lock (%s): other runs on this device may disturb the times", file, error.strerror)
        return None
    return lock
