"""Kernels of many plans in few executables: alone, each is compiled with all headers anew, and linked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import CompileError
from spmark.impls.runtime.host import ring


def given_on_host(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """Give the parameters of those tests of a module that run, and are of an implementation on the host ring."""
    items = [one for one in request.session.items if getattr(one, "module", None) is request.module]
    given = [dict(item.callspec.params) for item in items if hasattr(item, "callspec")]
    return [one for one in given if one.get("kind") is DeviceKind.HOST_SIMT and "name" in one]


@contextmanager
def compiled_together(builds: Iterable[Callable[[], object]]) -> Iterator[None]:
    """Compile, with the first kernel of a source inside, all kernels of the source that these builds ask for.

    The builds are made once for what they ask for, without a compiler: what fails, or launches a kernel, ends there.
    """
    asked: dict[Path, set[str]] = defaultdict(set)

    def noted(source: Path, instances: Sequence[str]) -> Path:
        asked[source].update(instances)
        return Path("nothing is compiled yet")

    with patch.object(ring, "compile_host", noted):
        for build in builds:
            with suppress(Exception):
                build()
    alone = ring.compile_host

    def together(source: Path, instances: Sequence[str]) -> Path:
        try:
            return alone(source, sorted(asked[source].union(instances)))
        except CompileError:  # of which kernel, the test that asks for it says
            asked[source].clear()
            return alone(source, instances)

    with patch.object(ring, "compile_host", together):
        yield
