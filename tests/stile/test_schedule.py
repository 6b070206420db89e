"""Schedules of tiles: those that there are kernels for, and the walk through them."""

from __future__ import annotations

from typing import Any

import pytest

from spmark.impls.core.problem import DType
from spmark.impls.kernels.ell_buckets import NEVER, SPMM_ELL_BUCKETS
from spmark.impls.kernels.sddmm import SDDMM_CSR
from spmark.impls.kernels.tile_float import SPMM_TILES_FLOAT, VECTOR, VECTORS
from spmark.impls.kernels.tile_sddmm import SDDMM_TILES
from spmark.impls.kernels.tile_spmm import AHEAD, SPMM_TILES
from spmark.impls.runtime.template import C_TYPES
from spmark.impls.stile.schedule import block_tiles, ell_tiles, run_schedules, tile_schedules, walk


@pytest.mark.parametrize("width", [1, 3, 8, 20, 32, 40, 64, 128, 136, 512])
def test_every_schedule_has_a_kernel(width: int) -> None:
    for dtype in DType:
        for tile in ell_tiles(width, dtype):
            SPMM_ELL_BUCKETS.instance(T=C_TYPES[dtype], **tile, threads=128)
            assert width % tile["vector"] == 0
        for run in run_schedules(width, dtype):
            SDDMM_CSR.instance(T=C_TYPES[dtype], **run, threads=128)
    vector = next(v for v in (8, 2, 1) if width % v == 0)
    for tiles in tile_schedules(width):
        SDDMM_TILES.instance(vector=vector, lanes=tiles["lanes"], batch=tiles["batch"], threads=128)
    if width % 8 == 0:
        columns = 4 if width <= 32 else 8
        for tile in block_tiles(width, DType.FLOAT32):
            assert (tile["vector"], tile["vectors"]) == (VECTOR, VECTORS)
            SPMM_TILES_FLOAT.instance(mixed=True, columns=columns, lanes=tile["lanes"], threads=128)
        for tile in block_tiles(width):
            SPMM_TILES.instance(mixed=True, columns=columns, ahead=AHEAD[columns][0], **tile, threads=128)


def walked(
    widest: int, blocks: bool, best: dict[str, Any], hopeless: float = 1e9, half: bool = True
) -> list[dict[str, Any]]:
    seen: list[dict[str, Any]] = []

    def time_us(schedule: dict[str, Any]) -> float:
        seen.append(schedule)
        return 10.0 + sum(schedule.get(name) != value for name, value in best.items())

    walk(ell_tiles(256, DType.FLOAT16), widest, blocks, half, time_us, lambda us: us > hopeless)
    return seen


def test_a_walk_ends_at_the_fastest() -> None:
    best = {"lanes": 16, "vectors": 2, "work": 8, "spread": 32, "together": NEVER, "by_row": True}
    assert walked(64, False, best)[-1].items() >= best.items()
    seen = walked(64, False, {})
    assert len(seen) == len({str(schedule) for schedule in seen})


def test_a_walk_asks_for_what_there_is() -> None:
    assert all("by_row" not in schedule for schedule in walked(32, True, {}))
    for hopeless in (1e9, 1.0):  # who takes a panel is asked before a form is given up
        assert {schedule.get("alone") for schedule in walked(0, True, {}, hopeless)} == {4, 16}
    assert all("alone" not in schedule for schedule in walked(32, False, {}))
    assert all("shallow" not in schedule for schedule in walked(0, True, {}, half=False))
    assert {schedule.get("shallow") for schedule in walked(0, True, {})} == {None, True}
    assert {schedule.get("shallow") for schedule in walked(32, True, {})} == {None}
    assert {schedule["spread"] for schedule in walked(16, False, {})} == {NEVER}
    assert len(walked(64, False, {"work": 0}, hopeless=1.0)) == len(ell_tiles(256, DType.FLOAT16))
