"""Runs on one GPU take turns."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from filelock import FileLock, Timeout
from suite_fakes import but, rmat_case

from spmark.datasets.cache import Cache
from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.operators import reference
from spmark.impls.runtime.device import find
from spmark.suite import measure
from spmark.suite.measure import Bench
from spmark.suite.run.gpu_lock import turn, turn_file

CASE = rmat_case("scipy_cpu", 6, 8)


def held(file: Path) -> bool:
    """Say whether somebody holds the lock."""
    lock = FileLock(file)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    lock.release()
    return False


def test_the_next_waits_until_the_turn_is_over(tmp_path: Path) -> None:
    file = tmp_path / "turns" / "gpu.lock"
    told: list[str] = []
    order: list[str] = []

    def second() -> None:
        with turn(file, lambda: told.append("waiting")):
            order.append("second")

    with turn(file, lambda: told.append("never")):
        thread = threading.Thread(target=second)
        thread.start()
        while not told:
            time.sleep(0.001)
        time.sleep(0.05)
        order.append("first")
    thread.join(10)
    assert (told, order) == (["waiting"], ["first", "second"])
    assert not held(file)


def test_an_error_ends_the_turn(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), turn(tmp_path / "gpu.lock", list):
        raise ZeroDivisionError
    assert not held(tmp_path / "gpu.lock")


def test_without_a_place_for_the_lock_a_warning_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "turns").write_text("a file in the folder's place")
    with caplog.at_level(logging.WARNING), turn(tmp_path / "turns" / "gpu.lock", list):
        pass
    assert "other runs on this device may disturb the times" in caplog.text


def test_a_gpu_goes_by_its_place_on_the_bus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path))
    lab: Any = SimpleNamespace(xp=SimpleNamespace(cuda=SimpleNamespace(Device=lambda: FakeDevice("0000:1B:00.0"))))
    file = turn_file(find("cpu").model_copy(update={"kind": DeviceKind.CUDA}), lab)
    assert file is not None
    assert (file.parent, "1B" in file.name) == (tmp_path / "turns", True)
    assert turn_file(find("cpu"), lab) is None


class FakeDevice:
    """CuPy's device, as far as it is asked."""

    def __init__(self, pci_bus_id: str) -> None:
        self.pci_bus_id = pci_bus_id


@pytest.mark.full
def test_a_bench_keeps_its_turn_while_it_uses_the_device_and_not_while_it_loads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "gpu.lock"
    seen: dict[str, bool] = {}

    def seen_reference(*given: Any) -> Any:
        seen["reference"] = held(file)
        return reference(*given)

    monkeypatch.setattr(measure, "turn_file", lambda device, lab: file)
    monkeypatch.setattr(measure, "reference", seen_reference)
    bench = Bench(find("cpu"), Cache.default(), on_phase=lambda name: seen.update({name: held(file)}))
    row, _ = bench.measure(CASE)
    assert row.samples_us, row.reason
    assert not (seen.pop("loading") or seen.pop("reference"))
    assert seen == dict.fromkeys(("placing", "building", "checking", "timing"), True)
    assert not held(file)
    row, _ = bench.measure(but(CASE, implementation="gespmm"))
    assert not row.samples_us
    assert not held(file)
