"""The plan cache: a search is told again with its cost, and only where everything that it depends on is the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from problems import random_csr

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.interfaces import Candidate, Search
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.runtime.device import find
from spmark.impls.tuning.cache import Kept, PlanCache, searched

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


def test_another_problem_device_pin_or_version_is_another_search(monkeypatch: pytest.MonkeyPatch) -> None:
    cache_of().write(KEPT)
    turned = replace(PROBLEM, matrix=replace(PROBLEM.matrix, indices=PROBLEM.matrix.indices[::-1].copy()))
    problems = [turned, replace(PROBLEM, width=128), replace(PROBLEM, dtype=DType.FLOAT16)]
    for problem in (*problems, replace(PROBLEM, op=Op.SDDMM), replace(PROBLEM, op=Op.SDDMM, scaled=True)):
        assert cache_of(problem).read() is None
    assert cache_of(device=GPU.model_copy(update={"name": "another"})).read() is None
    assert cache_of(device=GPU.model_copy(update={"arch": "sm_100"})).read() is None
    assert cache_of(c=2).read() is None
    assert PlanCache("stile", PROBLEM, GPU, {}).read() is None
    monkeypatch.setattr("spmark.impls.tuning.cache.implementation_version", lambda package: "another version")
    assert cache_of().read() is None


def test_values_count_where_a_plan_depends_on_them() -> None:
    matrix = PROBLEM.matrix
    other = replace(PROBLEM, matrix=replace(matrix, values=matrix.values + 1))
    for values in (False, True):
        PlanCache("lo_spmm", PROBLEM, GPU, {}, values).write(KEPT)
        same_pattern = matrix.hash == other.matrix.hash
        expected = KEPT if same_pattern and not values else None
        assert PlanCache("lo_spmm", other, GPU, {}, values).read() == expected


@pytest.mark.parametrize("damage", [b"", b"{", b"[[" * 50_000])
def test_a_damaged_file_counts_as_absent(damage: bytes) -> None:
    cache = cache_of()
    cache.write(KEPT)
    cache.path.write_bytes(damage)
    assert cache.read() is None


def test_a_search_runs_once_and_its_seconds_are_told_again() -> None:
    asked = []

    def search() -> tuple[dict[str, Any], Search]:
        asked.append(1)
        return {"work": 8}, SEARCH

    first = searched(cache_of(), search)
    again = searched(cache_of(), search)
    assert len(asked) == 1
    assert first == again
    assert set(first.phases_s) == {"search"}
