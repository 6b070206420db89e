"""The order of an operator's calls: those that share counters and workspaces take turns."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spmark.impls.operator.gpu import CudaStreams

_PER_THREAD = 2
"""CUDA's handle of the default stream of each thread: one handle, many streams."""


class Turns:
    """Lets calls of one operator take turns: a plan owns counters and workspaces that two calls may not share.

    On the host a lock makes calls of several threads take turns. On a GPU a call that arrives on another stream than
    the call before waits there for the end of that call, which an event marks; the host never waits.

    While a stream captures a graph, nothing waits and nothing is marked: the order of a graph's replays and of other
    calls is the caller's.

    Parameters
    ----------
    streams : CudaStreams, optional
        Of a GPU; None on the host.

    Attributes
    ----------
    shared : object, optional
        The extension's part.
    """

    def __init__(self, streams: CudaStreams | None = None) -> None:
        self._lock, self._streams = threading.Lock(), streams
        self._last: tuple[int, int] | None = None
        self._launcher: Any = None
        self.shared: Any = None

    def share(self, launcher: Any) -> None:
        """Let calls of the extension take turns with Python's from now on, before the first of either."""
        self._launcher, self.shared = launcher, launcher.turns()

    def take(self, work: Callable[..., None], arrays: Sequence[Any], *given: Any) -> None:
        """Do or enqueue ``work(*given)`` after earlier turns; ``arrays`` tell on which stream it is enqueued."""
        if self._streams is None:
            with self._lock:
                work(*given)
            return
        stream = self._streams.current(arrays)
        if self._launcher is not None:
            self._launcher.begin(self.shared, stream.ptr)
            try:
                work(*given)
            finally:
                self._launcher.end(self.shared, stream.ptr)
            return
        with self._lock:
            if self._streams.capturing(stream):
                work(*given)
                return
            here = (stream.ptr, threading.get_ident() if stream.ptr == _PER_THREAD else 0)
            if self._last not in (None, here):
                self._streams.wait(stream)
            self._last = here
            try:
                work(*given)
            finally:
                self._streams.mark(stream)

    def order(self) -> None:
        """Let every call take turns from now on, also one that the extension makes without counters and workspaces."""
        if self._launcher is not None:
            self._launcher.order(self.shared)

    def stream(self, arrays: Sequence[Any]) -> Any:
        """Give the stream of a GPU on which a call with these arrays is enqueued."""
        assert self._streams is not None
        return self._streams.current(arrays)

    def capturing(self, arrays: Sequence[Any]) -> bool:
        """Tell whether a call with these arrays would be captured into a graph."""
        return self._streams is not None and self._streams.capturing(self._streams.current(arrays))
