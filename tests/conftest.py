"""Fixtures that several test files share."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest

from spmark.impls.core.problem import Csr
from spmark.impls.runtime.device import cuda_missing


def pytest_configure(config: pytest.Config) -> None:
    """Keep compiled kernels and parsed matrices out of the user's own cache."""
    if "SPMARK_CACHE" not in os.environ:
        cache = getattr(config, "cache", None)
        os.environ["SPMARK_CACHE"] = str(cache.mkdir("spmark")) if cache else tempfile.mkdtemp(prefix="spmark-")
    # A test that asks for an empty cache of its own need not compile every loop again.
    os.environ.setdefault("NUMBA_CACHE_DIR", os.environ["SPMARK_CACHE"])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where there is none."""
    reason = cuda_missing()
    if reason is not None:
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason=reason))


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
