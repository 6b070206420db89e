"""Schedules of tiles: those that there are kernels for, and the axes that are walked along."""

from __future__ import annotations

import pytest

from spmark.impls.core.problem import DType
from spmark.impls.kernels.ell_buckets import SPMM_ELL_BUCKETS
from spmark.impls.kernels.sddmm import SDDMM_CSR
from spmark.impls.kernels.tile_sddmm import SDDMM_TILES
from spmark.impls.kernels.tile_spmm import AHEAD, SPMM_TILES, VECTOR
from spmark.impls.runtime.template import C_TYPES, NARROW
from spmark.impls.stile.schedule import block_tiles, ell_tiles, run_schedules, tile_schedules


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
        tile = {"vector": vector, "lanes": tiles["lanes"], "batch": tiles["batch"]}
        for kind in NARROW:
            SDDMM_TILES.instance(T=kind, **tile, threads=128)
    if width % 8 == 0:
        columns = 4 if width <= 32 else 8
        for tile in block_tiles(width, DType.FLOAT32):
            assert (tile["vector"], tile["vectors"]) == (VECTOR, 1)
            SPMM_TILES.instance(T="float", mixed=True, columns=columns, ahead=1, **tile, threads=128)
        for tile in block_tiles(width):
            for kind in NARROW:
                SPMM_TILES.instance(T=kind, mixed=True, columns=columns, ahead=AHEAD[columns][0], **tile, threads=128)
