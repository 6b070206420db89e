"""Tiles measured on a GPU: times that rise with the work, constants that a search can use."""

from __future__ import annotations

import pytest

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import DeviceError
from spmark.impls.core.problem import DType, Op
from spmark.impls.kernels.tile_spmm import HEIGHTS
from spmark.impls.runtime.device import calibrated, find
from spmark.impls.stile.calibration import Calibration
from spmark.studies.stile import samples

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def spec() -> DeviceSpec:
    try:
        return calibrated(find("cuda"))
    except DeviceError as error:
        pytest.skip(str(error))


def test_constants_of_one_operator(spec: DeviceSpec) -> None:
    from spmark.studies.stile.gpu import Laboratory

    laboratory = Laboratory(spec)
    fitted = laboratory.fit_sddmm(DType.FLOAT16)
    assert fitted.agreement.pearson > 0.9
    tables = spec.model_copy(update={"tables": fitted.calibration.tables()})
    assert Calibration.of(tables, Op.SDDMM, DType.FLOAT16) == fitted.calibration
    assert (
        fitted.learned is None
        or Calibration.of(spec.model_copy(update={"tables": fitted.tables()}), Op.SDDMM, DType.FLOAT16, net=True)
        == fitted.learned
    )
    narrow, *_, wide = fitted.calibration.blocks
    assert 0 < narrow.plain_ms < wide.plain_ms


def test_more_work_takes_longer(spec: DeviceSpec) -> None:
    from spmark.studies.stile.gpu import Laboratory

    laboratory = Laboratory(spec)
    one, *_ = (tile for _, tile in samples.ell_tiles((64,)) if tile.indices.size == 256)
    alone, shared = (laboratory.ell_ms(64, one, DType.FLOAT16, shared) for shared in (False, True))
    assert 0 < alone < shared
    costs = {(block.rows, block.cols): block for block in laboratory.blocks(DType.FLOAT16) if block.part == 64}
    for height in HEIGHTS:
        assert costs[height, 16].plain_ms < costs[height, 160].plain_ms
    assert all(block.plain_ms <= block.atomic_ms for block in costs.values())
