"""The extension of spmark.torch: built, kept, absent, damaged; launches noted; calls on the host, by a false driver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from spmark.impls.core.errors import DeviceError
from spmark.impls.runtime.noting import Noted, note, noted

pytest.importorskip("torch", reason="PyTorch is not installed")
from spmark.impls.operator import native


def array(address: int) -> Any:
    """Give what is an array of the device to a launch list."""
    return SimpleNamespace(data=SimpleNamespace(ptr=address))


def test_calls_on_the_host(tmp_path: Path) -> None:
    """In a process of its own, which loads a library under the name of CUDA's driver."""
    if sys.platform != "linux":
        pytest.skip("the driver's library has another name")
    script = Path(__file__).with_name("native_on_host.py")
    environment = {**os.environ, "SPMARK_CACHE": str(tmp_path / "cache"), "CUDA_VISIBLE_DEVICES": ""}

    def run() -> None:
        found = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True, env=environment)
        assert found.returncode == 0, found.stderr[-3000:]

    run()
    (kept,) = [path for path in (tmp_path / "cache" / "native").iterdir() if path.is_file()]
    made = kept.stat().st_mtime_ns, kept.read_bytes()
    run()
    assert (kept.stat().st_mtime_ns, kept.read_bytes()) == made
    kept.write_bytes(made[1][:-1] + b"?")  # damaged: compiled again
    run()
    assert kept.read_bytes()[-1:] == made[1][-1:]


def test_without_a_compiler_products_stay_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def missing() -> None:
        asked.append(True)
        raise DeviceError("expected g++, found none")

    monkeypatch.setattr(native, "build", missing)
    building = native._Building()
    assert building.extension() is None
    building._thread.join()
    assert building.extension() is None
    assert len(asked) == 1
    assert native.NativeCalls(7).spmm(None, None) is NotImplemented


def test_launches_are_noted_for_the_thread_that_asks() -> None:
    function = SimpleNamespace(ptr=5)
    note(function, (1, 1, 1), 32, (), 0, False)
    with noted() as launches:
        note(function, (2, 1, 1), 64, (np.int32(1),), 8, True)
    note(function, (3, 1, 1), 32, (), 0, False)
    assert launches == [Noted(5, (2, 1, 1), 64, (np.int32(1),), 8, True)]


def test_places_of_operand_and_result_are_found() -> None:
    pytest.importorskip("cupy")
    args = (np.int32(-1), array(90), array(1000), array(1016), np.float32(1), array(2000))
    launches = [Noted(5, (np.int64(2), 1, 1), 64, args, 0, False)]
    spans = [(1000, 64), (2000, 32)]
    found = native.launch_list(launches, spans)
    words = [2**64 - 1, 90, 1000, 1016, 0x3F800000, 2000]
    assert found == [(5, (2, 1, 1), 64, 0, False, words, [(2, 0, 0), (3, 0, 16), (5, 1, 0)])]
    assert native.launch_list(launches, [(1000, 64), (3000, 32)]) is None  # written by something else
    assert native.launch_list([], spans) is None


def test_plans_of_libraries_are_refused() -> None:
    operator: Any = SimpleNamespace(built=lambda width: None)
    assert native.native_plan(None, operator, SimpleNamespace(shape=(4, 3)), 1) is None
