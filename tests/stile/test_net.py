"""The network of the cost model: what scikit-learn predicts, tables and back, what a search makes of it, refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from problems import random_csr

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.enums import MEASURED_TYPES
from spmark.impls.core.errors import DeviceError, UnsupportedError
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.runtime.device import find
from spmark.impls.stile.calibration import Calibration, Line, calibration_for, published_a100, shipped
from spmark.impls.stile.net import FEATURES, Net
from spmark.impls.stile.plan import Stile
from spmark.studies.stile import fitting, samples
from spmark.studies.stile.fitting import HELD_OUT, Agreement, Fitted, Measured, Tile, fitted, tiles_name

A100 = published_a100()
PEAK = 40.0


def bent(tile: Tile, atomic: bool) -> float:
    """Make up milliseconds that no line fits: short rows gather slowly, wide ones add on top."""
    rows, width, *_ = tile
    roof = float(Measured.of([(tile, 1.0, 1.0)]).roof_bytes(Op.SPMM, DType.FLOAT16, PEAK, atomic)[0])
    return 1e-7 * (roof * (1 + 3 / width) + 0.02 * roof**1.3 + 40 * rows)


def spmm_fitted() -> Fitted:
    tiles = [tile.tile(part) for part, tile in samples.ell_tiles(samples.SPMM_PARTS)]
    found = Measured.of((tile, bent(tile, False), bent(tile, True)) for tile in tiles)
    calibration = Calibration.of(A100, Op.SPMM, DType.FLOAT16)
    return fitted(replace(calibration, line=Line(0, 0, 0, 1, PEAK)), found)


@pytest.fixture(scope="module")
def spmm() -> Fitted:
    return spmm_fitted()


@pytest.fixture(scope="module")
def sddmm() -> Fitted:
    def time(tile: samples.Pattern, width: int) -> float:
        return 1e-7 * (tile.indices.shape[0] * 3 + tile.columns) * width**0.9

    found = Measured.of(
        (tile.tile(width), time(tile, width), 0.0) for tile in samples.run_tiles() for width in samples.SDDMM_WIDTHS
    )
    calibration = Calibration.of(A100, Op.SDDMM, DType.FLOAT16)
    return fitted(replace(calibration, line=Line(0, 0, 0, 1, PEAK)), found)


@pytest.fixture
def line_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train no network, as where scikit-learn is missing: the line is fitted before, and training takes seconds."""

    def missing(*_: object) -> Net:
        raise UnsupportedError("scikit-learn is not there")

    monkeypatch.setattr(fitting, "train_net", missing)


def test_layers_are_what_scikit_learn_computes() -> None:
    from sklearn.neural_network import MLPRegressor

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, FEATURES)), rng.normal(size=40)
    model = MLPRegressor(hidden_layer_sizes=(7, 3), solver="lbfgs", max_iter=60, random_state=0).fit(x, y)
    net = Net.of(model.coefs_, model.intercepts_)
    assert net.sizes == (FEATURES, 7, 3, 1)
    np.testing.assert_allclose(np.log(net.milliseconds(x)), model.predict(x), atol=1e-5)


def test_tiles_it_has_not_seen_are_predicted_better_than_by_a_line(spmm: Fitted, sddmm: Fitted) -> None:
    for found in (spmm, sddmm):
        own, out = found.learned, found.measured.some(fitting.held_out(found.measured))
        learned = Agreement.of(own.nets[0].milliseconds(out.features(own.op, own.dtype, own.line)), out.plain_ms)
        assert learned.pearson > 0.99
        assert learned.rmse < found.agreement.rmse
    assert len(spmm.learned.nets) == 2
    assert len(sddmm.learned.nets) == 1


def test_what_is_written_is_read_back(spmm: Fitted, sddmm: Fitted) -> None:
    for found in (spmm, sddmm):
        spec = A100.model_copy(update={"tables": found.tables()})
        calibration = found.learned
        assert Calibration.of(spec, calibration.op, calibration.dtype, net=True) == calibration
        assert Calibration.of(spec, calibration.op, calibration.dtype) == found.calibration


def kept(table: list[float]) -> Measured:
    """Read the tiles of a calibration file."""
    return Measured.of(((a, b, c, d), *times) for a, b, c, d, *times in np.reshape(table, (-1, 6)).tolist())


@pytest.mark.usefixtures("line_alone")
def test_measured_tiles_are_kept_and_give_the_same_constants(spmm: Fitted, sddmm: Fitted) -> None:
    for found in (spmm, sddmm):
        op, dtype = found.calibration.op, found.calibration.dtype
        again = kept(found.tables()[tiles_name(op, dtype)])
        given = replace(found.calibration, line=Line(0, 0, 0, 1, PEAK))
        assert fitted(given, again).calibration == found.calibration
    assert (sddmm.measured.atomic_ms == 0).all()


@pytest.mark.parametrize("op", Op)
@pytest.mark.parametrize("dtype", MEASURED_TYPES)
def test_the_h200s_own_tiles(op: Op, dtype: DType) -> None:
    """What ships predicts the tiles that it was not fitted to, the network better than the line."""
    found, _ = calibration_for("nvidia-h200", op, dtype, net=True)
    table = DeviceSpec.load(shipped("nvidia-h200")).tables[tiles_name(op, dtype)]
    tiles = kept(table)
    out = tiles.some(np.arange(tiles.plain_ms.size) % HELD_OUT == HELD_OUT - 1)
    line = found.line
    by_line = line.a * out.roof_bytes(op, dtype, line.peak, read_bytes=line.read_bytes) + line.b
    by_net = found.nets[0].milliseconds(out.features(op, dtype, line))
    ours, learned = (Agreement.of(predicted, out.plain_ms) for predicted in (by_line, by_net))
    assert ours.pearson > (0.95 if op is Op.SPMM else 0.99)
    assert learned.pearson > 0.99
    assert learned.rmse < ours.rmse


def test_a_plan_names_it(tmp_path: Path, spmm: Fitted) -> None:
    path = tmp_path / "own.json"
    A100.model_copy(update={"name": "own", "tables": spmm.tables()}).save(path)
    problem = Problem(Op.SPMM, random_csr(50, 60, [7] * 50), 32, DType.FLOAT16)
    plan = Stile(cost_model="mlp", calibration=str(path)).build(problem, find("host-simt"))
    assert plan.config["cost_model"] == "mlp"
    assert plan.config["calibration"] == "own, not this GPU's"
    assert "cost_model" not in Stile(calibration=str(path)).build(problem, find("host-simt")).config


def test_who_has_no_network_says_so() -> None:
    with pytest.raises(DeviceError, match=r"stile_spmm_float16_net.*not trained for this device"):
        Calibration.of(A100, Op.SPMM, DType.FLOAT16, net=True)
    with pytest.raises(ValueError, match="cost_model out of line, mlp"):
        Stile(cost_model="forest")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda table: [], "expected the number of sizes"),
        (lambda table: [4.0, 5.0, *table[2:]], "expected the number of sizes"),
        (lambda table: [4.0, 6.0, 0.5, *table[3:]], "expected the number of sizes"),
        (lambda table: [9.0, *table[1:]], "expected the number of sizes"),
        (lambda table: table[:-1], "numbers for layers of"),
        (lambda table: [*table[:-1], float("nan")], "not finite"),
    ],
)
def test_what_is_no_network_is_refused(change, what: str, spmm: Fitted) -> None:
    name = "stile_spmm_float16_net"
    spec = A100.model_copy(update={"tables": {**spmm.tables(), name: change(spmm.tables()[name])}})
    with pytest.raises(DeviceError, match=what):
        Calibration.of(spec, Op.SPMM, DType.FLOAT16, net=True)
