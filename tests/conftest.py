"""Fixtures that several test files share, and which tests a run collects."""

from __future__ import annotations

import gc
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from host_races import watched
from hypothesis import settings

from spmark.impls.core.devicespec import BUSY
from spmark.impls.core.files import whole
from spmark.impls.core.problem import Csr
from spmark.impls.runtime.device import cuda_missing, find, user_calibration
from spmark.impls.runtime.toolchain import gcc_missing

SECONDS = Path(__file__).parent / "seconds.tsv"
SLOW_S = 0.5
"""Seconds from which on `make check` runs a function only where a change reaches it."""
LEFT_OUT = pytest.StashKey[dict[str, int]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run choose between the fast tests, the usual ones, what these leave out, and all."""
    parser.addoption(
        "--tests",
        choices=("fast", "usual", "rest", "all"),
        default="usual",
        help="usual: samples of the tables of kernels, and nothing marked full; fast: of these, what seconds.tsv does "
        "not list; rest: what usual leaves out; all: usual and rest",
    )
    parser.addoption(
        "--also", action="append", default=[], help="a function of seconds.tsv that runs with the fast tests"
    )
    parser.addoption("--write-seconds", action="store_true", help="list the functions that took half a second and more")


@pytest.fixture(scope="session", autouse=True)
def _watched(request: pytest.FixtureRequest) -> Generator[None]:
    """Look for races in all kernels that run on the host; the fast tests look for what the product looks for."""
    with nullcontext() if request.config.getoption("tests") == "fast" or gcc_missing() else watched():
        yield


def pytest_configure(config: pytest.Config) -> None:
    """Keep compiled kernels and parsed matrices out of the user's own cache."""
    config.stash[LEFT_OUT] = {"gpu": 0, "fast": 0, "usual": 0}
    if "SPMARK_CACHE" not in os.environ:
        cache = getattr(config, "cache", None)
        os.environ["SPMARK_CACHE"] = str(cache.mkdir("spmark")) if cache else tempfile.mkdtemp(prefix="spmark-")
        keep_calibration()
    settings.register_profile("few", max_examples=80, deadline=None)
    settings.register_profile("many", max_examples=200, deadline=None)
    settings.load_profile("many" if os.environ.get("CI") else "few")
    # A test that asks for an empty cache of its own need not compile every loop again.
    os.environ.setdefault("NUMBA_CACHE_DIR", os.environ["SPMARK_CACHE"])
    # Threads of OpenMP that wait for each other would take the cores of the tests beside them.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def keep_calibration() -> None:
    """Keep rates of the CPU that refuse no time: where tests take all cores, each run would measure them anew."""
    cpu = find("cpu")
    rates = {"copy_bytes_per_s": 1e10, "read_bytes_per_s": 1e10, "fma_flops_per_s": 1e11}
    with whole(user_calibration(cpu.name)) as part:
        cpu.model_copy(update={**rates, "calibrated_with": {BUSY: "made up for tests"}}).save(part)


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
    """Leave out what belongs to the other parts of the tests."""
    part = config.getoption("tests")
    seconds = dict(line.split("\t") for line in SECONDS.read_text().splitlines()[1:])
    slow = seconds.keys() - set(config.getoption("also"))
    kept, left_out, turns = [], [], Counter[str]()
    for item in items:
        one_in, turn = item.get_closest_marker("one_in"), turns[function_of(item.nodeid)]
        turns[function_of(item.nodeid)] += 1
        full = item.get_closest_marker("full") is not None or (one_in is not None and turn % one_in.args[0] != 0)
        listed = part == "fast" and function_of(item.nodeid) in slow
        wanted = part == "all" or (full == (part == "rest") and not listed)
        (kept if wanted else left_out).append(item)
    # What takes long and is begun last would leave the other processes without work. Of the rest, what has a limit of
    # its own takes minutes.
    of_file = defaultdict[str, float](float)
    for function, took in seconds.items():
        of_file[file_of(function)] += float(took)
    if part == "rest":
        kept.sort(key=lambda item: item.get_closest_marker("timeout") is None)
    elif part == "usual":
        kept.sort(key=lambda item: -of_file[file_of(item.nodeid)])
    items[:] = kept
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    if part in ("fast", "usual"):
        config.stash[LEFT_OUT][part] = len(left_out)


def pytest_collection_finish() -> None:
    """Keep thousands of collected tests out of every collection of garbage, of which the tests ask for many."""
    gc.collect()
    gc.freeze()


def function_of(nodeid: str) -> str:
    """Give a test's file and function: its id without its parameters."""
    return nodeid.partition("[")[0]


def file_of(nodeid: str) -> str:
    """Give a test's file."""
    return nodeid.partition("::")[0]


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
    if counts["usual"]:
        terminalreporter.line(f"{counts['usual']:,} tests were left to make test-rest")
    if counts["fast"]:
        terminalreporter.line(f"{counts['fast']:,} tests were left to make test and make test-rest")
    if config.getoption("write_seconds"):
        write_seconds(report for reports in terminalreporter.stats.values() for report in reports)


def write_seconds(reports: Iterable[Any]) -> None:
    """Write the functions that took `SLOW_S` and more, all their cases and fixtures together."""
    seconds: dict[str, float] = defaultdict(float)
    for report in reports:
        if isinstance(report, pytest.TestReport):
            seconds[function_of(report.nodeid)] += report.duration
    rows = [f"{name}\t{took:.1f}\n" for name, took in sorted(seconds.items()) if took >= SLOW_S]
    SECONDS.write_text("test\tseconds\n" + "".join(rows))


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
