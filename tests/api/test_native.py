"""The extension of spmark.torch: on the host, by a false driver; absent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spmark.impls.core.errors import DeviceError

pytest.importorskip("torch", reason="PyTorch is not installed")
from spmark.impls.operator import native
from spmark.impls.operator.extension import Background


def test_calls_on_the_host(tmp_path: Path, run_on_host: Any) -> None:
    run_on_host("native_on_host.py", tmp_path, tmp_path / "cache")


def test_without_a_compiler_products_stay_in_python() -> None:
    asked = []

    def missing() -> None:
        asked.append(True)
        raise DeviceError("expected g++, found none")

    building = Background(missing, "products take their path in Python")
    assert building.found() is None
    assert building.wait() is None
    assert building.found() is None
    assert len(asked) == 1
    assert native.NativeCalls(7).spmm(None, None) is NotImplemented
