"""Matrices and products that the tests of the public API share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from spmark.impls.tuning import timer

LIMITS = {"float16": 2e-2, "bfloat16": 6e-2, "float32": 2e-5, "float64": 1e-13}
"""Largest error allowed, over the largest magnitude of the result."""


@pytest.fixture
def a() -> Any:
    """Give a 40 x 25 CSR of float32 with empty rows."""
    rng = np.random.default_rng(1)
    dense = rng.standard_normal((40, 25)) * (rng.random((40, 25)) < 0.2)
    dense[[0, 7, 39]] = 0
    return sparse.csr_array(dense.astype(np.float32))


@pytest.fixture
def b() -> np.ndarray:
    """Give a 25 x 6 operand of float32."""
    return np.random.default_rng(2).standard_normal((25, 6)).astype(np.float32)


@pytest.fixture
def xy() -> tuple[np.ndarray, np.ndarray]:
    """Give operands X (40, 6) and Y (25, 6) of float32."""
    rng = np.random.default_rng(3)
    return rng.standard_normal((40, 6)).astype(np.float32), rng.standard_normal((25, 6)).astype(np.float32)


@pytest.fixture
def run_on_host() -> Any:
    """Give what runs a script beside this file in a process that loads a library under the name of CUDA's driver."""

    def run(script: str, folder: Path, cache: Path) -> None:
        if sys.platform != "linux":
            pytest.skip("the driver's library has another name")
        environment = {**os.environ, "SPMARK_CACHE": str(cache), "CUDA_VISIBLE_DEVICES": ""}
        command = [sys.executable, Path(__file__).with_name(script), folder]
        found = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert found.returncode == 0, found.stderr[-3000:]

    return run


@pytest.fixture
def torch() -> Any:
    """Give PyTorch, or skip."""
    return pytest.importorskip("torch", reason="PyTorch is not installed")


def wide(array: Any) -> np.ndarray:
    """Give any dense array as NumPy's float64."""
    if type(array).__module__ == "torch":
        return array.double().numpy()
    return np.asarray(array, np.float64)


def assert_close(found: Any, expected: np.ndarray, dtype: str = "float32") -> None:
    """Hold a result against float64 within what the type explains."""
    assert tuple(found.shape) == expected.shape
    scale = np.abs(expected).max(initial=1)
    assert np.abs(wide(found) - expected).max(initial=0) <= LIMITS[dtype] * scale


@pytest.fixture
def close() -> Any:
    """Give `assert_close`."""
    return assert_close


def sampled(a: Any, x: Any, y: Any, scaled: bool = False) -> np.ndarray:
    """Give SDDMM in float64, in the order of A's canonical CSR."""
    rows = sparse.csr_array(a, copy=True)
    rows.sum_duplicates()
    coo = rows.tocoo()
    dots = (wide(x)[coo.row] * wide(y)[coo.col]).sum(axis=1)
    return dots * coo.data if scaled else dots


@pytest.fixture
def sddmm_of() -> Any:
    """Give `sampled`."""
    return sampled


MADE_UP_US = {"scipy_cpu": 90.0, "numba_cpu": 30.0}


class Timer:
    """Gives made-up times, by the class of a plan."""

    def __init__(self, *_: Any) -> None:
        pass

    def check(self, plan: Any) -> None:
        pass

    def times_us(self, plans: Any, rounds: int) -> list[list[float]]:
        return [[MADE_UP_US[type(plan).__module__.split(".")[2]]] * rounds for plan in plans]

    def alternating_us(self, plans: Any) -> list[list[float]]:
        return self.times_us(plans, 10)


@pytest.fixture
def made_up_times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let races on the CPU have made-up times: Numba wins."""
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path))
    monkeypatch.setattr(timer, "PlanTimer", Timer)
