"""Which GPU can be used, and what is said where none can."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from spmark.impls.core.devicespec import BUSY
from spmark.impls.core.machine import Load
from spmark.impls.runtime import device
from spmark.impls.runtime.device import cuda_missing


def cupy_with(count: int, capability: str) -> SimpleNamespace:
    runtime = SimpleNamespace(getDeviceCount=lambda: count, CUDARuntimeError=RuntimeError)
    return SimpleNamespace(
        cuda=SimpleNamespace(runtime=runtime, Device=lambda: SimpleNamespace(compute_capability=capability))
    )


@pytest.mark.parametrize(
    ("count", "capability", "said"),
    [
        (0, "", "the driver lists no GPU"),
        (1, "75", "expected a GPU of sm_80 (Ampere) or newer, found sm_75"),
        (1, "80", None),
        (2, "120", None),
    ],
)
def test_a_gpu_is_of_ampere_or_newer(
    count: int, capability: str, said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "exists", lambda self: True)
    monkeypatch.setitem(sys.modules, "cupy", cupy_with(count, capability))
    assert cuda_missing.__wrapped__() == said


@pytest.mark.parametrize("taken", [0.0, 1.5])
def test_the_first_calibration_tells_of_a_busy_machine(
    taken: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path))
    monkeypatch.setattr(device, "calibrate", lambda spec: spec.model_copy(update={"copy_bytes_per_s": 7.0}))
    monkeypatch.setattr("spmark.impls.core.machine.LoadMeter.read", lambda _: Load(2, 2 - taken))
    spec = device.find("cpu").model_copy(update={"name": "nobody's cpu"})
    assert device.calibrated(spec).copy_bytes_per_s == 7.0
    told = "was calibrated while other processes take 1.5 of 2 cores"
    assert (told in caplog.text) == bool(taken)
    assert ("run `spmark calibrate --device cpu` once" in caplog.text) == bool(taken)
    caplog.clear()
    assert (BUSY in device.calibrated(spec).calibrated_with) == bool(taken)
    assert bool(caplog.records) == bool(taken), "only a calibration on a quiet machine is kept"


def test_a_calibration_of_another_number_of_cores_does_not_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path))
    rates = iter([7.0, 9.0])
    monkeypatch.setattr(device, "calibrate", lambda spec: spec.model_copy(update={"copy_bytes_per_s": next(rates)}))
    few = device.find("cpu").model_copy(update={"name": "nobody's cpu", "num_sms": 2, "memory_bytes": 1 << 30})
    assert device.calibrated(few).copy_bytes_per_s == 7.0
    more_memory = device.calibrated(few.model_copy(update={"memory_bytes": 1 << 40}))
    assert (more_memory.copy_bytes_per_s, more_memory.memory_bytes) == (7.0, 1 << 40)
    many = few.model_copy(update={"num_sms": 64})
    assert device.calibration_file(many) is None
    assert device.calibrated(many).copy_bytes_per_s == 9.0
