"""Which GPU can be used, and what is said where none can."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

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
