"""Plans on disk: what was built comes back with its code, or not at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from problems import random_csr
from rank_fakes import stump

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.files import cache_folder
from spmark.impls.core.interfaces import Candidate, Search
from spmark.impls.core.problem import Csr, Op, Problem
from spmark.impls.lo_spmm import plan
from spmark.impls.lo_spmm.plan import LoSpmm, _cache_of, _read
from spmark.impls.lo_spmm.rank import find
from spmark.impls.lo_spmm.space import TileSize
from spmark.impls.runtime.compile import Binary, cached
from spmark.impls.runtime.device import shipped_calibration
from spmark.impls.tuning.cache import Kept, PlanCache

H200 = DeviceSpec.load(shipped_calibration("nvidia-h200"))
MATRIX = random_csr(9, 20, [3] * 9)
PROBLEM = Problem(Op.SPMM, MATRIX, 32)
KEY = "ab" * 32
BINARY = Binary(b"\x7fELF machine code", "lo_spmm", 40, 0, 0)
SEARCH = Search(9, 2, 1, 16, (Candidate({"cpt": 1}, 12.5, (3.0, 4.0)),))
CODE = {"size": vars(TileSize(16, 256, 1, 3)), "num_tiles": 7, "code_key": KEY}
KEPT = Kept({"mode": "near", "cpt": 1}, SEARCH, {"search": 1.5}, CODE)


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path))
    monkeypatch.setattr(plan, "nvcc_version", lambda: "13.0")


def kept() -> PlanCache:
    cached(KEY, lambda: BINARY)
    cache = _cache_of(PROBLEM, H200, LoSpmm())
    cache.write(KEPT)
    return cache


def test_a_plan_comes_back_with_its_code_and_its_accounts() -> None:
    assert _read(_cache_of(PROBLEM, H200, LoSpmm())) is None
    kept()
    assert _read(_cache_of(PROBLEM, H200, LoSpmm())) == (KEPT, TileSize(16, 256, 1, 3), BINARY)
    assert _cache_of(PROBLEM, H200, LoSpmm()).path == kept().path


def test_another_matrix_config_gpu_or_tool_is_another_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    values = MATRIX.values.copy()
    values[5] = np.nextafter(values[5], np.float32(2))
    others = [
        _cache_of(Problem(Op.SPMM, Csr(MATRIX.shape, MATRIX.indptr, MATRIX.indices, values), 32), H200, LoSpmm()),
        _cache_of(Problem(Op.SPMM, random_csr(9, 20, [3] * 9, seed=1), 32), H200, LoSpmm()),
        _cache_of(Problem(Op.SPMM, MATRIX, 33), H200, LoSpmm()),
        _cache_of(PROBLEM, H200.model_copy(update={"name": "nvidia-h100"}), LoSpmm()),
        _cache_of(PROBLEM, H200, LoSpmm(cpt=1)),
        kept(),
    ]
    monkeypatch.setattr(plan, "nvcc_version", lambda: "13.1")
    others.append(_cache_of(PROBLEM, H200, LoSpmm()))
    assert len({cache.path for cache in others}) == len(others)


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


@pytest.mark.parametrize("damage", ["gone", "poisoned", "another's"])
def test_a_plan_without_its_code_is_none(damage: str) -> None:
    cache = kept()
    other = "cd" * 32
    cached(other, lambda: replace(BINARY, cubin=b"\x7fELF another kernel"))
    places = {path.name: path for path in cache_folder().rglob("*") if path.is_file()}
    if damage == "gone":
        places[KEY].unlink()
    elif damage == "poisoned":
        places[KEY].write_bytes(places[KEY].read_bytes()[:-1] + b"X")
    else:
        places[KEY].write_bytes(places[other].read_bytes())
    assert cache.read() == KEPT
    assert _read(cache) is None
