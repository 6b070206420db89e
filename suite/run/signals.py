"""Ctrl-C as a question and not as an exception: a row that is being written is finished before the run stops."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self


class StopSignals:
    """While active, SIGINT and SIGTERM set `asked`; a second one has its usual effect.

    Outside the main thread, where Python handles no signals, nothing is changed.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {}

    def __call__(self) -> bool:
        """Tell whether the user asked to stop."""
        return self.asked

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()
