"""What fits a multiprocessor once the assembler has said how many registers it needs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import BuildError
from spmark.impls.lo_spmm.machine import Code, check_fits, fitting
from spmark.impls.lo_spmm.space import TileSize
from spmark.impls.runtime.device import shipped_calibration

TARGET = SimpleNamespace(spec=DeviceSpec.load(shipped_calibration("nvidia-h200")))


def code(registers: int) -> Code:
    return Code({}, 0, registers)


@pytest.mark.parametrize(
    ("registers", "expected"), [(40, 4), (64, 4), (65, 3), (80, 3), (81, 2), (128, 2), (129, 1), (255, 1)]
)
def test_fewer_tiles_where_registers_do_not_do(registers: int, expected: int) -> None:
    """Four tiles of 256 threads have 64 registers each, which are handed out in eights."""
    assert fitting(code(registers), TileSize(16, 256, 1, 4), TARGET) == TileSize(16, 256, 1, expected)


def test_a_tile_that_does_not_fit_alone() -> None:
    with pytest.raises(BuildError, match="65,536 registers for 1024 threads, found 65 for each"):
        fitting(code(65), TileSize(16, 1024), TARGET)
    check_fits(code(64), TileSize(16, 1024), TARGET)
