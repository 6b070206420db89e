"""Results of searches, kept on disk: one sealed file for each problem, device, space and version of the code."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

from pydantic import TypeAdapter

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.digest import implementation_version
from spmark.impls.core.errors import BuildError
from spmark.impls.core.files import HELD, ON_DISK, cache_folder, keep_latest, mark_used, read_sealed, write_sealed
from spmark.impls.core.interfaces import Config, Plan, Search
from spmark.impls.core.machine import positive_number
from spmark.impls.core.relational import AnyProblem
from spmark.impls.core.untrusted import parse_json
from spmark.impls.runtime.compile import drop
from spmark.impls.runtime.device import versions

VARIABLE = "SPMARK_MAX_PLANS_MIB"
DEFAULT_MIB = 256.0
"""Most that the results of all searches take on disk; those that were used least recently make room."""
_EMPTYING = threading.RLock()
P = TypeVar("P", bound=Plan)


@dataclass(frozen=True)
class Kept:
    """The result of a search; every use of it reports the search's cost and candidates again."""

    config: dict[str, Any]
    """The config that was chosen."""
    search: Search
    phases_s: dict[str, float]
    """Seconds that the search took, by phase."""
    more: dict[str, Any] = field(default_factory=dict)
    """Further data that an implementation needs to build the plan again."""


_KEPT = TypeAdapter(Kept)


class PlanCache:
    """The file of one search, beside what `HELD` holds.

    Parameters
    ----------
    implementation : str
        Its folder under ``impls``.
    problem : Problem or RelationalProblem
    device : DeviceSpec
    pinned : mapping
        The tunables that were pinned before the search, and everything else that its result depends on.
    values : bool
        Whether the plan depends on A's values, too, and not on its pattern alone.
    code : str, optional
        The module whose version the result depends on (`implementation_version`); by default the implementation.

    Raises
    ------
    BuildError
        ``SPMARK_MAX_PLANS_MIB`` does not hold a positive number.
    """

    def __init__(
        self,
        implementation: str,
        problem: AnyProblem,
        device: DeviceSpec,
        pinned: Mapping[str, Any],
        *,
        values: bool = False,
        code: str | None = None,
    ) -> None:
        words = [problem.matrix.hash, str(problem.op), problem.operand_shapes, str(problem.dtype), problem.scaled]
        version = implementation_version(code or implementation)
        words += [device.name, device.arch, versions(device), dict(pinned), version]
        digest = hashlib.sha256(json.dumps(words, sort_keys=True, default=str).encode())
        if values:
            digest.update(problem.values.data)
        self._name = f"{implementation}/{digest.hexdigest()}.json"
        self.path: Path = _folder() / self._name
        self._most_bytes = int(positive_number(VARIABLE, DEFAULT_MIB, "MiB", BuildError) * (1 << 20))

    def read(self) -> Kept | None:
        """Give the kept result; None where the file is missing or damaged."""
        held = HELD.get()
        content = (held or {}).get(self._name) or self._read_file()
        kept = _kept(content)
        if kept is not None and held is not None:
            held[self._name] = content
        return kept

    def read_own(self) -> Kept | None:
        """Give the result out of this user's cache alone, as `read`: what it says of compiled code can be trusted."""
        return _kept(self._read_file())

    def write(self, kept: Kept) -> None:
        """Keep a result; a cache that cannot be written costs only time."""
        content = json.dumps(asdict(kept), default=str).encode()
        if ON_DISK.get():
            write_sealed(self.path, content)
            keep_latest(self.path.parents[1], self._most_bytes)
        held = HELD.get()
        if held is not None:
            held[self._name] = content

    def _read_file(self) -> bytes:
        if not ON_DISK.get():
            return b""
        mark_used(self.path)
        return read_sealed(self.path) or b""


def has_kept(implementation: str) -> bool:
    """Tell whether any search of an implementation is on disk, which takes less time than to name one."""
    return (_folder() / implementation).is_dir()


def _folder() -> Path:
    return cache_folder().parent / "plans"


def _kept(content: bytes) -> Kept | None:
    with suppress(ValueError, RecursionError):  # pydantic's errors are ValueErrors
        return _KEPT.validate_python(parse_json(content))
    return None


def searched(
    cache: PlanCache,
    search: Callable[[], tuple[Config, P, Search]],
    legal: Callable[[Config], bool],
    apart: Mapping[str, float] | None = None,
) -> tuple[Kept, P | None]:
    """Give the kept result; where there is none, search and keep the result.

    The seconds of the search are the phase ``search`` of the result, now and whenever it is read again.

    Parameters
    ----------
    cache : PlanCache
    search : callable
        Gives the config that it chose, the plan of it, and what it cost. The seconds that the plan reports are none of
        the search.
    legal : callable
        Tells whether the search may give a config. A kept result comes out of a file that somebody may have changed, a
        saved operator for one.
    apart : mapping of str to float, optional
        Seconds by phase that the search writes here as it goes. They are phases of the result beside ``search``.

    Returns
    -------
    kept : Kept
    plan : Plan or None
        Of the search; None where the result was kept.

    Raises
    ------
    BuildError
        The kept result has a config that is not legal.
    """
    kept = cache.read()
    if kept is None:
        started = perf_counter()
        config, plan, record = search()
        others = dict(apart or {})
        spent = perf_counter() - started - sum(others.values()) - sum(plan.phases_s.values())
        kept = Kept(config, record, {**others, "search": max(0.0, spent)})  # a plan may report a search of another day
        cache.write(kept)
        return kept, plan
    if not legal(kept.config):
        raise BuildError(
            f"expected a config that a search of {cache.path.parent.name} may give, found {str(kept.config)[:200]}: "
            f"the file of the operator was changed, or {cache.path} was; compile the operator anew"
        )
    return kept, None


@contextmanager
def empty_cache() -> Iterator[None]:
    """Give this process an empty cache of kernels and plans, which is thrown away at the end.

    Compilers run in processes of their own, so the environment changes, for all threads. Two threads with empty caches
    take turns. A thread that builds meanwhile without asking for an empty cache uses the empty one, too.
    """
    with _EMPTYING, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        drop()  # nor kernels that were begun before
        before = os.environ.get("SPMARK_CACHE")
        os.environ["SPMARK_CACHE"] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ["SPMARK_CACHE"]
            else:
                os.environ["SPMARK_CACHE"] = before
