"""The plan cache: a search is told again with its cost, and only where everything that it depends on is the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from problems import random_csr

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import BuildError
from spmark.impls.core.files import HELD, ON_DISK, within
from spmark.impls.core.interfaces import Candidate, Plan, Search
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.runtime.device import find
from spmark.impls.tuning.cache import Kept, PlanCache, empty_cache, searched
from spmark.impls.tuning.space import Axis, Space

PROBLEM = Problem(Op.SPMM, random_csr(64, 64, [5] * 64), 64)
GPU = find("host-simt").model_copy(update={"name": "made-up"})
SEEN = (Candidate({"work": 8}, 1.5, (3.0, 2.0)), Candidate({"work": 16}, reason="does not fit"))
SEARCH = Search(2, compiled=1, measured=1, seen=SEEN, compile_s=0.5, run_s=0.25)
KEPT = Kept({"work": 8}, SEARCH, {"search": 1.5}, {"key": "code"})


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path))


def cache_of(problem: Problem = PROBLEM, device: DeviceSpec = GPU, **pinned: Any) -> PlanCache:
    return PlanCache("sparsetir", problem, device, pinned)


def test_what_was_kept_is_read_back_whole() -> None:
    assert cache_of().read() is None
    cache_of().write(KEPT)
    assert cache_of().read() == KEPT


def test_another_problem_device_driver_pin_or_version_is_another_search(monkeypatch: pytest.MonkeyPatch) -> None:
    cache_of().write(KEPT)
    turned = replace(PROBLEM, matrix=replace(PROBLEM.matrix, indices=PROBLEM.matrix.indices[::-1].copy()))
    problems = [turned, replace(PROBLEM, width=128), replace(PROBLEM, dtype=DType.FLOAT16)]
    for problem in (*problems, replace(PROBLEM, op=Op.SDDMM), replace(PROBLEM, op=Op.SDDMM, scaled=True)):
        assert cache_of(problem).read() is None
    assert cache_of(device=GPU.model_copy(update={"name": "another"})).read() is None
    assert cache_of(device=GPU.model_copy(update={"arch": "sm_100"})).read() is None
    assert cache_of(c=2).read() is None
    assert PlanCache("stile", PROBLEM, GPU, {}).read() is None
    for name in ("versions", "implementation_version"):
        with monkeypatch.context() as patch:
            patch.setattr(f"spmark.impls.tuning.cache.{name}", lambda given: "another version")
            assert cache_of().read() is None
    assert cache_of().read() == KEPT


def test_values_count_where_a_plan_depends_on_them() -> None:
    matrix = PROBLEM.matrix
    other = replace(PROBLEM, matrix=replace(matrix, values=matrix.values + 1))
    for values in (False, True):
        PlanCache("lo_spmm", PROBLEM, GPU, {}, values=values).write(KEPT)
        same_pattern = matrix.hash == other.matrix.hash
        expected = KEPT if same_pattern and not values else None
        assert PlanCache("lo_spmm", other, GPU, {}, values=values).read() == expected


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe", b"[[" * 50_000])
def test_a_damaged_file_counts_as_absent(damage: bytes) -> None:
    cache = cache_of()
    cache.write(KEPT)
    cache.path.write_bytes(damage)
    assert cache.read() is None
    cache.write(KEPT)
    assert cache.read() == KEPT


def test_a_file_of_another_search_counts_as_absent() -> None:
    """A file that was copied or renamed is whole, and yet not what it is looked for as."""
    cache, other = cache_of(), cache_of(c=2)
    cache.write(KEPT)
    other.path.write_bytes(cache.path.read_bytes())
    assert cache.read() == KEPT
    assert other.read() is None


def test_links_are_replaced_and_not_followed(tmp_path: Path) -> None:
    cache = cache_of()
    cache.path.parent.mkdir(parents=True)
    (tmp_path / "precious").write_text("mine")
    cache.path.symlink_to(tmp_path / "precious")
    assert cache.read() is None
    cache.write(KEPT)
    assert (tmp_path / "precious").read_text() == "mine"
    assert cache.read() == KEPT


WRITER = """
import sys
from dataclasses import replace
sys.path.insert(0, sys.argv[1])
import test_cache as t
print("ready", flush=True)
for turn in range(int(sys.argv[2])):
    t.cache_of().write(replace(t.KEPT, more={"turn": turn}))
"""


def writer(turns: int) -> subprocess.Popen[str]:
    tests = Path(__file__).parent
    place = os.pathsep.join([str(tests), str(tests.parent)])
    command = [sys.executable, "-c", WRITER, str(tests), str(turns)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": place})


def test_two_processes_write_while_a_third_reads() -> None:
    """Every file that is read is whole, and nothing but the file is left."""
    running = [writer(300), writer(300)]
    seen = 0
    cache = cache_of()
    while any(one.poll() is None for one in running):
        found = cache.read()
        if found is not None:
            seen += 1
            assert found == replace(KEPT, more=found.more)
        else:
            assert not seen, "a file that was there is gone"
    assert [one.returncode for one in running] == [0, 0]
    assert cache.read() is not None
    assert [path.name for path in cache.path.parent.iterdir()] == [cache.path.name]


def test_a_cache_that_cannot_be_written_costs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "plans").write_text("in the way")
    cache_of().write(KEPT)
    assert cache_of().read() is None


@pytest.mark.parametrize("before", [True, False])
def test_an_empty_cache_leaves_and_finds_nothing(before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    cache_of().write(KEPT)
    if not before:
        monkeypatch.delenv("SPMARK_CACHE")
    held = os.environ.get("SPMARK_CACHE")
    with empty_cache():
        assert cache_of().read() is None
        inside = cache_of()
        inside.write(KEPT)
        assert inside.path.is_file()
    assert not inside.path.exists()
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
            assert cache_of().read() is None
            inside.append(mine)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: build(), range(2)))
    assert len(set(inside)) == 2
    assert os.environ["SPMARK_CACHE"] == held


def test_a_search_runs_once_and_its_seconds_are_told_again() -> None:
    asked = []

    plan = Plan(phases_s={"convert": 0.01})

    def search() -> tuple[dict[str, Any], Plan, Search]:
        asked.append(1)
        time.sleep(0.03)
        return {"work": 8}, plan, SEARCH

    first, won = searched(cache_of(), search, lambda _: True)
    again, none = searched(cache_of(), search, lambda _: True)
    assert len(asked) == 1
    assert first == again
    assert (won, none) == (plan, None)
    assert set(first.phases_s) == {"search"}
    assert first.phases_s["search"] >= 0.02


def test_seconds_that_the_plan_reports_are_none_of_the_search() -> None:
    built = Plan(phases_s={"convert": 100.0})
    kept, _ = searched(cache_of(), lambda: ({"work": 8}, built, SEARCH), lambda _: True, {"features": 1.0})
    assert kept.phases_s == {"features": 1.0, "search": 0.0}


def test_held_results_answer_before_files_and_take_in_what_is_read_or_found() -> None:
    held: dict[str, bytes] = {}
    with within(HELD, held):
        assert cache_of().read() is None
        cache_of().write(KEPT)
        assert cache_of().read() == KEPT
    (name,) = held
    assert name == f"sparsetir/{cache_of().path.name}"
    cache_of().path.unlink()
    assert cache_of().read() is None, "outside, only files answer"
    with within(HELD, dict(held)):
        assert searched(cache_of(), lambda: pytest.fail("a search"), lambda _: True)[0].config == KEPT.config
    cache_of().write(replace(KEPT, config={"work": 16}))
    found: dict[str, bytes] = {}
    with within(HELD, found):
        assert cache_of().read() == replace(KEPT, config={"work": 16})
    assert found.keys() == held.keys()


def test_a_config_that_the_search_cannot_give_is_refused() -> None:
    cache_of().write(KEPT)
    with pytest.raises(BuildError, match=r"expected a config that a search of sparsetir may give, found "):
        searched(cache_of(), lambda: pytest.fail("a search"), Space((Axis.of("work", (7,)),)).__contains__)


@pytest.mark.parametrize(
    "facts", [{"search": {"candidates": "many"}}, {"config": [1]}, {"phases_s": {"search": "long"}}]
)
def test_facts_of_another_type_count_as_damaged(facts: dict[str, Any]) -> None:
    whole = json.loads(json.dumps(asdict(KEPT)))
    with within(HELD, {f"sparsetir/{cache_of().path.name}": json.dumps(whole | facts).encode()}):
        assert cache_of().read() is None


def test_without_files_only_what_is_held_answers() -> None:
    cache_of().write(KEPT)
    held: dict[str, bytes] = {}
    with within(ON_DISK, False), within(HELD, held):
        assert cache_of().read() is None
        cache_of(c=2).write(KEPT)
        assert cache_of(c=2).read() == KEPT
    assert cache_of(c=2).read() is None
    assert cache_of().read() == KEPT


def test_all_searches_together_keep_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    caches = [PlanCache(name, PROBLEM, GPU, {}) for name in ("sparsetir", "stile", "liteform")]
    for number, cache in enumerate(caches):
        cache.write(KEPT)
        os.utime(cache.path, ns=(number, number))
    assert caches[0].read() == KEPT, "used now"
    size = caches[0].path.stat().st_size
    monkeypatch.setenv("SPMARK_MAX_PLANS_MIB", str(3.5 * size / (1 << 20)))
    cache_of(c=2).write(KEPT)
    assert [cache.read() is not None for cache in caches] == [True, False, True]
    monkeypatch.setenv("SPMARK_MAX_PLANS_MIB", str(0.5 * size / (1 << 20)))
    cache_of(c=3).write(KEPT)
    assert not [path for path in cache_of().path.parents[1].rglob("*") if path.is_file()]
