"""Plans on disk: what was built comes back whole or not at all."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
from problems import random_csr

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.interfaces import Candidate, Search
from spmark.impls.core.problem import Csr, Op, Problem
from spmark.impls.lo_spmm import remembered
from spmark.impls.lo_spmm.remembered import PlanCache, Remembered, empty_cache
from spmark.impls.lo_spmm.space import TileSize
from spmark.impls.runtime.compile import Binary, cache_folder, cached
from spmark.impls.runtime.device import shipped_calibration

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
