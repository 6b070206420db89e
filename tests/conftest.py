"""Fixtures that several test files share, and which tests a run collects."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spmark.impls.core.problem import Csr
from spmark.impls.runtime.device import cuda_missing

FUZZ = Path(__file__).parent / "fuzz"
LEFT_OUT = pytest.StashKey[dict[str, int]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run choose between the usual tests, what they leave out, and both."""
    parser.addoption(
        "--tests",
        choices=("usual", "rest", "all"),
        default="usual",
        help="usual: a sample of every table of kernels, and nothing marked full; rest: what usual leaves out, and the "
        "fuzz targets where SPMARK_FUZZ_SECONDS is set; all: both",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Keep compiled kernels and parsed matrices out of the user's own cache."""
    config.stash[LEFT_OUT] = {"gpu": 0, "full": 0}
    if "SPMARK_CACHE" not in os.environ:
        cache = getattr(config, "cache", None)
        os.environ["SPMARK_CACHE"] = str(cache.mkdir("spmark")) if cache else tempfile.mkdtemp(prefix="spmark-")
    # A test that asks for an empty cache of its own need not compile every loop again.
    os.environ.setdefault("NUMBA_CACHE_DIR", os.environ["SPMARK_CACHE"])


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Collect nothing that needs a GPU where there is none: only count it."""
    made = yield
    if not isinstance(made, list) or cuda_missing() is None:
        return made
    kept = [item for item in made if item.get_closest_marker("gpu") is None]
    collector.config.stash[LEFT_OUT]["gpu"] += len(made) - len(kept)
    return kept


@pytest.hookimpl(trylast=True)  # after -k and -m, so that what is counted was asked for
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what belongs to the other part of the tests."""
    part, longer = config.getoption("tests"), "SPMARK_FUZZ_SECONDS" in os.environ
    kept, left_out = [], []
    for item in items:
        full = item.get_closest_marker("full") is not None
        wanted = part == "all" or full == (part == "rest") or (longer and item.path.is_relative_to(FUZZ))
        (kept if wanted else left_out).append(item)
    items[:] = kept
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    if part == "usual":
        config.stash[LEFT_OUT]["full"] = len(left_out)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let a worker of xdist tell what it left out: its terminal is another process."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left_out"] = session.config.stash[LEFT_OUT]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what a worker left out; all workers leave out the same."""
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", node.config.stash[LEFT_OUT])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say what was not collected, in a line each."""
    counts = config.stash[LEFT_OUT]
    if counts["gpu"]:
        terminalreporter.line(f"{counts['gpu']:,} tests need an NVIDIA GPU and were not collected: {cuda_missing()}")
    if counts["full"]:
        terminalreporter.line(f"{counts['full']:,} tests were left to --tests=rest (make test-rest, make test-all)")


@pytest.fixture(scope="session")
def mirror() -> Path:
    """Give the local mirror of matrices, or skip."""
    path = Path(os.environ.get("SPMARK_MIRROR", ""))
    if not (path / "MANIFEST.tsv").is_file():
        pytest.skip("SPMARK_MIRROR does not name a folder with MANIFEST.tsv")
    return path


@pytest.fixture
def small_matrix() -> Csr:
    """Give a 12 x 9 matrix with an empty row."""
    dense = np.random.default_rng(0).standard_normal((12, 9)) * (np.arange(108).reshape(12, 9) % 3 == 0)
    dense[5] = 0
    rows, cols = np.nonzero(dense)
    indptr = np.searchsorted(rows, np.arange(13))
    return Csr.checked((12, 9), indptr, cols, dense[rows, cols])


@pytest.fixture(autouse=True)
def own_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the default limit of matrices: fuzz targets lower it for their processes when they are imported."""
    monkeypatch.delenv("SPMARK_MAX_MATRIX_GIB", raising=False)
