"""Plans on disk: what was built comes back whole or not at all."""

from __future__ import annotations

import dataclasses
import errno
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from problems import random_csr
from rank_fakes import stump

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.interfaces import Candidate, Search
from spmark.impls.core.problem import Csr, Op, Problem
from spmark.impls.lo_spmm import remembered
from spmark.impls.lo_spmm.plan import LoSpmm, _cache_of
from spmark.impls.lo_spmm.rank import find
from spmark.impls.lo_spmm.remembered import PlanCache, Remembered
from spmark.impls.lo_spmm.space import TileSize
from spmark.impls.runtime.compile import Binary, cache_folder, cached
from spmark.impls.runtime.device import shipped_calibration
from spmark.impls.tuning.cache import empty_cache

H200 = DeviceSpec.load(shipped_calibration("nvidia-h200"))
MATRIX = random_csr(9, 20, [3] * 9)
PROBLEM = Problem(Op.SPMM, MATRIX, 32)
KEY = "ab" * 32
BINARY = Binary(b"\x7fELF machine code", "lo_spmm", 40, 0, 0)
SEEN = (Candidate({"cpt": 1}, 12.5, (3.0, 4.0)), Candidate({"cpt": 2}, 13.0, (), "does not fit"))
PLAN = Remembered(
    TileSize(16, 256, 1, 3), 7, {"mode": "near", "cpt": 1}, {"search": 1.5}, Search(9, 2, 1, 16, SEEN), KEY
)


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path))
    monkeypatch.setattr(remembered, "nvcc_version", lambda: "13.0")


def kept() -> PlanCache:
    cached(KEY, lambda: BINARY)
    cache = PlanCache(PROBLEM, H200, {"cpt": 0})
    cache.write(PLAN)
    return cache


def test_a_plan_comes_back_with_its_code_and_its_accounts() -> None:
    assert PlanCache(PROBLEM, H200, {"cpt": 0}).read() is None
    kept()
    assert PlanCache(PROBLEM, H200, {"cpt": 0}).read() == (PLAN, BINARY)


def test_another_matrix_config_gpu_or_tool_is_another_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    values = MATRIX.values.copy()
    values[5] = np.nextafter(values[5], np.float32(2))
    others = [
        PlanCache(Problem(Op.SPMM, Csr(MATRIX.shape, MATRIX.indptr, MATRIX.indices, values), 32), H200, {"cpt": 0}),
        PlanCache(Problem(Op.SPMM, random_csr(9, 20, [3] * 9, seed=1), 32), H200, {"cpt": 0}),
        PlanCache(Problem(Op.SPMM, MATRIX, 33), H200, {"cpt": 0}),
        PlanCache(PROBLEM, H200.model_copy(update={"name": "nvidia-h100"}), {"cpt": 0}),
        PlanCache(PROBLEM, H200, {"cpt": 1}),
        kept(),
    ]
    monkeypatch.setattr(remembered, "nvcc_version", lambda: "13.1")
    others.append(PlanCache(PROBLEM, H200, {"cpt": 0}))
    assert len({cache.path for cache in others}) == len(others)


@pytest.mark.parametrize("damage", [b"", b"torn", b"\xff\xfe"])
def test_a_damaged_plan_is_none(damage: bytes) -> None:
    cache = kept()
    cache.path.write_bytes(damage)
    assert cache.read() is None
    cache.write(PLAN)
    assert cache.read() is not None


def test_a_plan_with_one_other_digit_is_none() -> None:
    cache = kept()
    text = cache.path.read_text()
    assert text.count('"threads": 256') == 1
    cache.path.write_text(text.replace('"threads": 256', '"threads": 128'))
    assert cache.read() is None


@pytest.mark.parametrize("damage", ["gone", "poisoned"])
def test_a_plan_without_its_code_is_none(damage: str) -> None:
    cache = kept()
    (entry,) = (path for path in cache_folder().rglob("*") if path.name == KEY)
    if damage == "gone":
        entry.unlink()
    else:
        entry.write_bytes(entry.read_bytes()[:-1] + b"X")
    assert cache.read() is None


def test_a_plan_of_another_problem_is_none() -> None:
    """A file that was copied or renamed is whole, and yet not what it is looked for as."""
    cache = kept()
    other = PlanCache(PROBLEM, H200, {"cpt": 1})
    other.path.write_bytes(cache.path.read_bytes())
    assert cache.read() is not None
    assert other.read() is None


def test_code_of_another_plan_is_none() -> None:
    cache = kept()
    other = "cd" * 32
    cached(other, lambda: dataclasses.replace(BINARY, cubin=b"\x7fELF another kernel"))
    places = {path.name: path for path in cache_folder().rglob("*") if path.is_file()}
    places[KEY].write_bytes(places[other].read_bytes())
    assert cache.read() is None


def test_links_are_replaced_and_not_followed(tmp_path: Path) -> None:
    cache = PlanCache(PROBLEM, H200, {"cpt": 0})
    cache.path.parent.mkdir(parents=True)
    (tmp_path / "precious").write_text("mine")
    cache.path.symlink_to(tmp_path / "precious")
    assert cache.read() is None
    kept()
    assert (tmp_path / "precious").read_text() == "mine"
    assert cache.read() is not None


WRITER = """
import sys
from dataclasses import replace
sys.path.insert(0, sys.argv[1])
import test_remembered as t
t.remembered.nvcc_version = lambda: "13.0"
print("ready", flush=True)
for turn in range(int(sys.argv[2])):
    t.cached(t.KEY, lambda: t.BINARY)
    t.PlanCache(t.PROBLEM, t.H200, {"cpt": 0}).write(replace(t.PLAN, num_tiles=turn))
"""


def writer(turns: int) -> subprocess.Popen[str]:
    tests = Path(__file__).parent
    place = os.pathsep.join([str(tests), str(tests.parent)])
    command = [sys.executable, "-c", WRITER, str(tests), str(turns)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": place})


def test_two_processes_write_while_a_third_reads() -> None:
    """Every plan that is read is whole, and nothing but the plan is left."""
    running = [writer(300), writer(300)]
    seen = 0
    cache = PlanCache(PROBLEM, H200, {"cpt": 0})
    while any(one.poll() is None for one in running):
        found = cache.read()
        if found is not None:
            seen += 1
            assert found == (dataclasses.replace(PLAN, num_tiles=found[0].num_tiles), BINARY)
        else:
            assert not seen, "a plan that was there is gone"
    assert [one.returncode for one in running] == [0, 0]
    assert cache.read() is not None
    assert [path.name for path in cache.path.parent.iterdir()] == [cache.path.name]


def test_a_writer_that_is_killed_leaves_what_was_there() -> None:
    cache = kept()
    running = writer(1_000_000)
    assert running.stdout is not None
    running.stdout.readline()
    time.sleep(0.05)
    running.kill()
    running.wait()
    found = cache.read()
    assert found is not None
    assert found[1] == BINARY
    cache.write(PLAN)
    assert cache.read() == (PLAN, BINARY)


def test_a_full_disk_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = kept()

    def full(self: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        cache.write(dataclasses.replace(PLAN, num_tiles=99))
    assert cache.read() == (PLAN, BINARY)
    assert [path.name for path in cache.path.parent.iterdir()] == [cache.path.name]


def test_a_cache_that_cannot_be_written_costs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "plans").write_text("in the way")
    kept()
    assert PlanCache(PROBLEM, H200, {"cpt": 0}).read() is None


def test_everything_of_a_plan_is_kept() -> None:
    kept()
    found = PlanCache(PROBLEM, H200, {"cpt": 0}).read()
    assert found is not None
    assert dataclasses.asdict(found[0]) == dataclasses.asdict(PLAN)


@pytest.mark.parametrize("before", [True, False])
def test_an_empty_cache_leaves_and_finds_nothing(before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    kept()
    if not before:
        monkeypatch.delenv("SPMARK_CACHE")
    held = os.environ.get("SPMARK_CACHE")
    with empty_cache():
        assert PlanCache(PROBLEM, H200, {"cpt": 0}).read() is None
        inside = kept().path
        assert inside.is_file()
    assert not inside.exists()
    assert os.environ.get("SPMARK_CACHE") == held


def test_threads_take_turns_with_an_empty_cache() -> None:
    """Whoever leaves first must not bring back the other's folder, nor leave it in the environment."""
    held = os.environ["SPMARK_CACHE"]
    inside: list[str] = []
    at_once = threading.Barrier(2)

    def build() -> None:
        at_once.wait()
        with empty_cache():
            mine = os.environ["SPMARK_CACHE"]
            time.sleep(0.02)
            assert os.environ["SPMARK_CACHE"] == mine
            assert PlanCache(PROBLEM, H200, {"cpt": 0}).read() is None
            inside.append(mine)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: build(), range(2)))
    assert len(set(inside)) == 2
    assert os.environ["SPMARK_CACHE"] == held


def test_another_model_under_the_same_name_is_another_plan(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    how = LoSpmm(mode="ec_spmm", model=str(path))
    paths = set()
    for threshold in (10, 20):
        stump(6, threshold).save(path)
        find.cache_clear()
        paths.add(_cache_of(PROBLEM, H200, how).path)
    find.cache_clear()
    assert len(paths) == 2
