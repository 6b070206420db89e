"""The tiles that a calibration measures: what is laid out is what is priced, and every copy has rows of its own."""

from __future__ import annotations

import numpy as np
import pytest

from spmark.impls.core.problem import Csr, DType, Op
from spmark.impls.kernels.tile_spmm import HEIGHTS
from spmark.impls.stile.calibration import calibration_for
from spmark.impls.stile.levels import make_level
from spmark.impls.stile.space import SearchMode, shapes_of
from spmark.impls.stile.windows import Tiled
from spmark.studies.stile import samples
from spmark.studies.stile.fitting import Measured, Tile

COPIES = 8


def roof_bytes(tile: Tile, op: Op, peak: float) -> float:
    """Give R of one tile in float16."""
    return float(Measured.of([(tile, 1.0, 1.0)]).roof_bytes(op, DType.FLOAT16, peak)[0])


@pytest.mark.parametrize("shared", [False, True])
def test_copies_of_ell_tiles(shared: bool) -> None:
    tiles = [tile for _, tile in samples.ell_tiles((32,))]
    assert {tile.indices.shape[1] for tile in tiles} == {1, 2, 4, 8, 16, 32}
    for tile in tiles[::3]:
        held = samples.ell_copies(tile, COPIES, shared)
        rows, width = tile.indices.shape
        uses = np.bincount(held.rows)
        assert set(uses) == {2 if shared else 1}
        assert uses.size == held.shape[0] == rows * COPIES // (1 + shared)
        columns = held.indices.reshape(COPIES, rows * width)
        assert all(np.unique(one).size == tile.columns for one in columns)
        assert np.unique(columns).size == tile.columns * COPIES == held.shape[1]


def test_what_is_priced_is_what_the_search_prices() -> None:
    calibration, _ = calibration_for("", Op.SPMM, DType.FLOAT16)
    line = calibration.line
    for _, tile in list(samples.ell_tiles((32,)))[-12::4]:
        rows, width = tile.indices.shape
        indptr = np.arange(0, tile.indices.size + 1, width, dtype=np.int32)
        matrix = Csr((rows, tile.columns), indptr, tile.indices.reshape(-1), np.ones(tile.indices.size, np.float32))
        shapes = shapes_of(calibration, 32, 32, 0, SearchMode.CODE, 32)
        level = make_level(Tiled.of(matrix), shapes, 0)
        assert level.cost_ms.tolist() == [
            pytest.approx(line.a * roof_bytes(tile.tile(32), Op.SPMM, line.peak) + line.b)
        ]


@pytest.mark.parametrize("height", HEIGHTS)
@pytest.mark.parametrize("shared", [False, True])
def test_copies_of_block_tiles(shared: bool, height: int) -> None:
    held = samples.block_copies(48, COPIES, shared, height)
    ((of, blocks),) = held.blocks.items()
    assert of == height
    assert blocks.rows.shape == (COPIES, height)
    assert set(np.bincount(blocks.rows.reshape(-1))) == {2 if shared else 1}
    assert np.diff(blocks.indptr).tolist() == [3] * COPIES
    assert np.unique(blocks.indices).size == blocks.indices.size == held.shape[1]
