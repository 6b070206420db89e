"""Kernels of many plans in few executables: alone, each is compiled with all headers anew, and linked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest.mock import patch

from spmark.impls.core.errors import CompileError
from spmark.impls.runtime.host import ring


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
            return alone(source, instances)

    with patch.object(ring, "compile_host", together):
        yield
