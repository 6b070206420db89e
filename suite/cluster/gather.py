"""A cluster as the place where a run's cases are measured: submits groups of cases, and takes in what workers tell.

Dask hands the groups out, again where a worker dies, so that a case may be measured twice: the first outcome counts.
Files are written by the process that runs this alone, and times in records are those of its clock.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from statistics import median
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from spmark.impls.core.errors import DeviceError
from spmark.records.schema import Environment
from spmark.suite.cluster.schedule import grouped
from spmark.suite.cluster.slow_gpus import probe_case, slower
from spmark.suite.cluster.work import Group, News, cache_id, described, end_child, measure_group, measures
from spmark.suite.plan.options import Options
from spmark.suite.plan.plan import Item, files_of
from spmark.suite.run.execute import Answer, Watcher, refusal
from spmark.suite.run.messages import Result
from spmark.suite.run.signals import StopSignals

_POLL_S = 0.2
"""Seconds between looks at the queue; workers go on meanwhile."""
_LOOK_S = 2.0
_HEARD_S = 0.5
"""Seconds after which workers know that tasks are cancelled."""
_LONE_S = 60.0
"""Seconds without a worker after which a run ends: a worker whose process dies comes back sooner."""
_RETRIES = 2
_log = logging.getLogger(__name__)


class Cluster:
    """The workers of a cluster.

    Parameters
    ----------
    client : distributed.Client
        Connected; a worker is there.
    device : str
        What each worker measures on, as `spmark.impls.runtime.device.find` takes it.
    sparse_library : str
        As `spmark.suite.environment.collect` takes it.

    Raises
    ------
    DeviceError
        The first worker has no such device, or the scheduler is gone.
    """

    def __init__(self, client: Any, device: str, sparse_library: str) -> None:
        self.client, self._device = client, device
        with _explained():
            first = next(iter(client.nthreads()))
            asked = client.submit(described, device, sparse_library, workers=[first], pure=False)
            self.environment = Environment.model_validate_json(asked.result())
            self._cache = client.submit(cache_id, workers=[first], pure=False).result()

    @property
    def workers(self) -> int:
        """Those that are there now."""
        return len(self.client.nthreads())

    def __str__(self) -> str:
        return f"{self.environment.device.name}, {self.workers} {'workers' if self.workers > 1 else 'worker'}"

    def measure(
        self, items: Sequence[Item], options: Options, *, stop: StopSignals, watcher: Watcher, until: float
    ) -> Generator[Sequence[Answer], None, None]:
        """Give the outcomes in the order in which they come.

        Raises
        ------
        DeviceError
            No worker is left, the scheduler is gone, or a group of cases has failed on several workers.
        """
        refused = [(item, refusal(item)) for item in items]
        yield [Answer(item, result, self.environment) for item, result in refused if result is not None]
        waiting = {item.spec.case_id: item for item in items if item.refused is None}
        with _explained():
            while waiting:
                before, run = len(waiting), self._submitted(list(waiting.values()), options)
                try:
                    yield from run.answers(waiting, stop, watcher, until)
                finally:
                    run.close()
                if stop.asked or time.monotonic() >= until:
                    return
                # Groups that the scheduler has forgotten, after a broken connection for one, are handed in again.
                if len(waiting) == before or run.error:
                    raise DeviceError(
                        f"expected an outcome of each case, found none of {len(waiting)}: "
                        f"{run.error or 'the scheduler has forgotten them'}; the same command goes on"
                    )

    def _submitted(self, items: Sequence[Item], options: Options) -> _Run:
        name, files = f"spmark-{uuid4().hex}", files_of(item.spec for item in items)
        groups = [
            Group(
                run=name,
                number=number,
                cases=tuple(item.spec for item in group),
                device=self._device,
                like=self.environment,
                options=options,
                files=files,
                probe=probe_case(items, self.environment.device.kind),
            ).model_dump_json()
            for number, group in enumerate(grouped(items, self.workers))
        ]
        return _Run(self.client, name, groups, self._cache)


class _Run:
    """Groups that were submitted, the heaviest first."""

    def __init__(self, client: Any, name: str, groups: Sequence[str], cache: str) -> None:
        from distributed import Queue

        self._client, self._name, self._cache = client, name, cache
        self._queue = Queue(name, client=client)
        # Tasks of one name that are more than the workers wait at the scheduler, which hands them out by priority.
        self._futures = [
            client.submit(measure_group, text, key=(name, number), priority=-number, retries=_RETRIES, pure=False)
            for number, text in enumerate(groups)
        ]
        self._probes: dict[str, float] = {}
        self._told: set[str] = set()
        self.error = ""
        self._busy: dict[str, str] = {}
        self._machines: dict[str, Environment] = {}
        self._reason, self._looked, self._seen = "", 0.0, time.monotonic()

    def answers(
        self, waiting: dict[str, Item], stop: StopSignals, watcher: Watcher, until: float
    ) -> Iterator[list[Answer]]:
        over_at = math.inf
        while True:
            # Asked before the news are taken in: what has ended has told everything.
            ended = not self._running() if over_at == math.inf else self._idle_since(over_at)
            if answers := list(self._taken_in(waiting, watcher)):
                yield answers
            if ended or stop.asked:
                break
            if over_at == math.inf and time.monotonic() >= until:
                over_at = time.monotonic()
                self._client.cancel(self._futures)  # what has begun a case finishes it
            self._look_for_workers()
            time.sleep(_POLL_S)

    def _taken_in(self, waiting: dict[str, Item], watcher: Watcher) -> Iterator[Answer]:
        """Give the outcomes that have come since the last time."""
        for text in self._news():
            news = News.model_validate_json(text)
            if news.environment is not None:
                self._machines[news.worker] = news.environment
            self._tell_of_cache(news)
            if news.kind == "lost":
                self._reason = f"{news.worker}: {news.reason}"
                _log.warning("a worker leaves: %s", self._reason)
            elif news.kind == "probed":
                self._compare(news)
            else:
                self._busy[news.worker] = news.next_id
                if news.next_id in waiting:
                    count = sum(map(bool, self._busy.values()))
                    watcher.entered(waiting[news.next_id].spec, f"on {news.worker}, {count} workers measure")
                # A case that a second worker has measured meanwhile is no longer waited for.
                item = waiting.pop(news.case_id, None)
                if item is not None and news.outcome is not None:
                    yield Answer(item, Result(news.outcome, news.seen), self._machines[news.worker])

    def _news(self) -> Sequence[str]:
        try:
            return tuple(self._queue.get(batch=True))
        except KeyError:  # a scheduler that was started anew has no such queue
            return ()

    def _tell_of_cache(self, news: News) -> None:
        """Tell of machines that do not see the cache of the first worker, each once."""
        host = urlsplit(news.worker).hostname or ""
        if news.cache not in ("", self._cache) and host not in self._told:
            self._told.add(host)
            _log.warning(
                "%s has a cache of its own, so that it fetches and parses matrices itself: name a folder that all "
                "machines see with SPMARK_CACHE, or give each a mirror (spmark mirror make) with SPMARK_MIRROR",
                host,
            )

    def _compare(self, probed: News) -> None:
        """Tell of GPUs that are slower than their siblings, each once."""
        if probed.outcome is None or probed.environment is None or not probed.outcome.samples_us:
            return
        name = f"{probed.environment.gpu or 'worker'} at {probed.worker}"
        self._probes[name] = median(probed.outcome.samples_us)
        for slow, excess in slower(self._probes, probed.environment.device).items():
            if slow not in self._told:
                self._told.add(slow)
                _log.warning(
                    "%s is %.1f %% slower than the median of %d GPUs on the same case, which is more than runs of one "
                    "code differ by: its times are not those of its siblings",
                    slow, 100 * excess, len(self._probes),
                )  # fmt: skip

    def _idle_since(self, over_at: float) -> bool:
        """Tell whether no worker measures any more, once all have heard that the run is over."""
        if any(self._busy.values()) or time.monotonic() < over_at + _HEARD_S:
            return False
        return not any(self._client.run(measures, on_error="ignore").values())

    def _running(self) -> bool:
        """Tell whether a group still runs or waits; what has ended is let go, or Dask would run it again elsewhere."""
        errors = [future.exception() for future in self._futures if future.status == "error"]
        self.error = self.error or next((f"{type(error).__name__}: {error}" for error in errors), "")
        self._futures = [future for future in self._futures if not future.done()]
        return bool(self._futures)

    def close(self) -> None:
        """Give up what still runs, and leave nothing behind at the scheduler and on the GPUs."""
        with suppress(OSError, RuntimeError):  # the scheduler may be gone, and then the client is closed
            self._client.cancel(self._futures, force=True)
            self._client.set_metadata([self._name], {})
            self._queue.close()
            self._client.run(end_child, on_error="ignore")

    def _look_for_workers(self) -> None:
        now = time.monotonic()
        if now < self._looked + _LOOK_S:
            return
        self._looked, there = now, self._client.nthreads()
        self._busy = {worker: case for worker, case in self._busy.items() if worker in there}
        if there:
            self._seen = now
        elif self._reason or now > self._seen + _LONE_S:
            raise DeviceError(f"expected workers, found none left: {self._reason or 'they have ended'}")


@contextmanager
def _explained() -> Iterator[None]:
    """Make an error of spmark out of what Dask raises where its scheduler is gone."""
    try:
        yield
    except (OSError, CancelledError, TimeoutError) as error:
        raise DeviceError(
            f"the scheduler does not answer any more ({error or type(error).__name__}); records are on disk, and the "
            "same command goes on"
        ) from error
