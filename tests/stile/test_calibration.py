"""The cost model: published numbers, table 3 by hand, and calibrations that do not fit."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from problems import random_csr

from spmark.impls.core.errors import DeviceError
from spmark.impls.core.files import constants_file
from spmark.impls.core.problem import DType, Op
from spmark.impls.runtime.device import host_simt
from spmark.impls.stile.calibration import Calibration, calibration_for, published_a100
from spmark.impls.stile.levels import make_level
from spmark.impls.stile.space import SearchMode, shapes_of, widest_bucket
from spmark.impls.stile.windows import Tiled

A100 = published_a100()


def test_what_is_written_is_read_back() -> None:
    spmm = Calibration.of(A100, Op.SPMM, DType.FLOAT16)
    assert Calibration.of(A100.model_copy(update={"tables": spmm.tables()}), Op.SPMM, DType.FLOAT16) == spmm


def test_a_gpu_without_a_shipped_calibration_has_this_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path))
    asked = ("some-gpu", Op.SPMM, DType.FLOAT16)
    assert calibration_for(*asked)[1] == f"{A100.name}, not this GPU's"
    own = constants_file("stile", "some-gpu")
    own.parent.mkdir(parents=True)
    A100.model_copy(update={"name": "some-gpu"}).save(own)
    assert calibration_for(*asked)[1] == "some-gpu"


@pytest.mark.parametrize(("nnz", "expected"), [(10_556, 4), (9_228, 4), (88_651, 32), (1_271_274, 32)])
def test_widest_buckets_of_the_papers_graphs(nnz: int, expected: int) -> None:
    assert widest_bucket(nnz, 108) == expected


def test_ell_tiles_by_table_3() -> None:
    lengths = [3, 4, 1, 2, 8, 30, 2, 0]
    matrix = random_csr(8, 40, lengths, 5)
    calibration = Calibration.of(A100, Op.SPMM, DType.FLOAT16)
    shapes = shapes_of(calibration, 32, 32, 10**6, SearchMode.CODE)
    level = make_level(Tiled.of(matrix), shapes, 0)
    line = calibration.line
    for tile, (first, stop) in enumerate(zip(level.first, level.stop, strict=True)):
        height = int(shapes.price.height[level.shape[tile]])
        columns = np.unique(matrix.indices[level.items[first:stop]]).size
        moved = (256 + columns * 32 + height * 32) * 2
        roof = max(moved, 2 * 256 * 32 / line.peak)
        assert level.cost_ms[tile] == pytest.approx(line.a * roof + line.b)
        twice = max(moved + height * 32 * 2, 2 * 256 * 32 / line.peak)
        assert level.atomic_ms[tile] == pytest.approx(level.cost_ms[tile] * max(1, line.c * twice / roof + line.d))
        assert level.average[tile] >= shapes.cheapest_ms


def test_one_dimensional_tiles_by_table_3() -> None:
    matrix = random_csr(20, 60, np.random.default_rng(0).integers(0, 20, 20).tolist())
    calibration = Calibration.of(A100, Op.SDDMM, DType.FLOAT16)
    shapes = shapes_of(calibration, 100, 64, matrix.nnz, SearchMode.CODE)
    level = make_level(Tiled.of(matrix), shapes, 0)
    row_of = np.repeat(np.arange(20), matrix.row_lengths)
    for tile, (first, stop) in enumerate(zip(level.first, level.stop, strict=True)):
        rows, columns = np.unique(row_of[first:stop]).size, np.unique(matrix.indices[first:stop]).size
        moved = ((rows + columns) * 100 + 32) * 2
        roof = max(moved, 2 * 32 * 100 / calibration.line.peak)
        assert level.cost_ms[tile] == pytest.approx(calibration.line.a * roof + calibration.line.b)
        assert level.average[tile] >= shapes.cheapest_ms


@pytest.mark.parametrize(
    ("tables", "what"),
    [
        ({}, "found none: calibrate"),
        ({"stile_sddmm_float16_roofline": [1.0, 0, 0, 1, 1]}, "found stile_sddmm_float16_roofline"),
        ({"stile_spmm_float16_roofline": [0.0, 0, 0, 1, 1]}, "a > 0"),
        ({"stile_spmm_float16_roofline": [1.0, 0, 0, 1]}, "a > 0"),
        ({"stile_spmm_float16_roofline": [1.0, 0, 0, 1, 1], "stile_spmm_float16_blocks": [16.0]}, "rows of 5"),
        (
            {"stile_spmm_float16_roofline": [1.0, 0, 0, 1, 1], "stile_spmm_float16_blocks": [16.0, 16, 32, 2, 1]},
            "rising",
        ),
        (
            {"stile_spmm_float16_roofline": [1.0, 0, 0, 1, 1], "stile_spmm_float16_blocks": [math.inf, 16, 32, 1, 2]},
            "whole numbers",
        ),
    ],
)
def test_what_is_no_calibration_is_refused(tables: dict[str, list[float]], what: str) -> None:
    with pytest.raises(DeviceError, match=what):
        Calibration.of(host_simt().model_copy(update={"tables": tables}), Op.SPMM, DType.FLOAT16)
