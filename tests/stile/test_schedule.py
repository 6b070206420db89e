"""Schedules of tiles: those that there are kernels for, and the axes that are walked along."""

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
from spmark.impls.stile.schedule import axes_of, block_tiles, ell_tiles, middle, run_schedules, tile_schedules


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


def test_axes_hold_what_there_is() -> None:
    half, tiles = True, block_tiles(128)
    assert names(ell_tiles(128, DType.FLOAT16), 64, False) == {*TILE, "threads", "spread", "together", "work", "by_row"}
    assert names(tiles, 64, True) == {*TILE, "spread", "together", "work", "alone"}
    assert names(tiles, 0, True) == {*TILE, "spread", "together", "work", "alone", "columns", "shallow"}
    assert names(tiles, 0, True, half=False) == {*TILE, "spread", "together", "work", "alone"}
    # Without ELL rows their loads, work and sharing make no difference; a narrow J has 4 columns of a lane always.
    for width, panels in ((128, 16), (32, 8)):
        assert [len(axis.values) for axis in axes_of(block_tiles(width), 0, True, half)] == [1, panels, 1, 1]
    large = [one for one in axes_of(ell_tiles(128, DType.FLOAT16), 0, False, half)[1].values if one["threads"] == 256]
    assert large
    for tile in large:
        SPMM_ELL_BUCKETS.instance(T="half", **tile)
    short, long = (axes_of(tiles, widest, False, half)[0].values for widest in (16, 64))
    assert short == ({"spread": NEVER, "together": NEVER},)
    assert {one["together"] for one in long} == {NEVER, 64, 32}
    first = {name: value for axis in axes_of(tiles, 64, False, half) for name, value in axis.values[0].items()}
    assert first == {**middle(tiles[0]), "by_row": False, "threads": 128}


TILE = ("vector", "vectors", "lanes")


def names(tiles: list[dict[str, Any]], widest: int, blocks: bool, half: bool = True) -> set[str]:
    return {name for axis in axes_of(tiles, widest, blocks, half) for one in axis.values for name in one}
