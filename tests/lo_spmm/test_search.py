"""Features, the estimate, and the search that uses them."""

from __future__ import annotations

import numpy as np
import pytest
from problems import random_csr

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import OperandError
from spmark.impls.core.problem import Csr, Op, Problem
from spmark.impls.lo_spmm.plan import LoSpmm
from spmark.impls.lo_spmm.reorder import Reordering
from spmark.impls.lo_spmm.search import Pins, explore
from spmark.impls.lo_spmm.space import TileSize
from spmark.impls.lo_spmm.tuning import Chooser
from spmark.impls.runtime.device import find, shipped_calibration

H200 = DeviceSpec.load(shipped_calibration("nvidia-h200"))


@pytest.fixture(scope="module")
def problem() -> Problem:
    rng = np.random.default_rng(7)
    lengths = rng.binomial(200, 0.1, 600)
    lengths[::50] = 0
    return Problem(Op.SPMM, random_csr(600, 200, lengths.tolist()), 512)


def test_pins_hold(problem: Problem) -> None:
    space = explore(problem, H200, Pins(10, 96, 4, 2, split=1, order=Reordering.NONE))
    assert space.survivors.sizes == (TileSize(10, 96, 4, 2),)
    with pytest.raises(ValueError, match="cpt that divides J = 512"):
        explore(problem, H200, Pins(cpt=3, split=1, order=Reordering.NONE))


def test_a_block_never_has_more_threads_than_it_may() -> None:
    """Where so small a problem has every constraint waived, too."""
    tiny = Problem(Op.SPMM, random_csr(60, 20, [3] * 60), 4000)
    space = explore(tiny, H200, Pins(tiles_per_block=8, split=1, order=Reordering.NONE))
    assert {size.tiles_per_block for size in space.survivors.sizes} == {8}
    assert max(size.block_threads for size in space.survivors.sizes) <= 1024
    with pytest.raises(ValueError, match="tiles_per_block whose threads are at most 1024"):
        explore(tiny, H200, Pins(tiles_per_block=40, split=1, order=Reordering.NONE))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"cpt": 3}, "cpt"),
        ({"prefetch": 65}, r"expected prefetch in \[1, 64\]"),
        ({"tile_rows": -1}, r"expected tile_rows in \[1, 255\]"),
        ({"mode": "luck"}, "mode"),
        ({"threads": 512, "tiles_per_block": 3}, "at most 1024"),
        ({"tiles_per_block": 33}, "at most 1024, found 33 of 32 threads"),
        ({"order": "best"}, "order"),
        ({"emitter": "sass"}, "emitter"),
        ({"threads": 48}, "warps"),
    ],
)
def test_illegal_tunables_are_refused(config: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        LoSpmm(**config)


def test_too_long_kernels_are_refused_with_the_reason(problem: Problem) -> None:
    host = find("host-simt")
    wide = Problem(Op.SPMM, problem.matrix, 1 << 20)
    assert "2 GiB" in str(LoSpmm().unsupported(wide, H200))
    assert "multiple of cpt = 4" in str(LoSpmm(cpt=4).unsupported(Problem(Op.SPMM, problem.matrix, 30), H200))
    many = Problem(Op.SPMM, random_csr(200, 200, [100] * 200), 8)
    assert "at most 16,384 non-zeros" in str(LoSpmm().unsupported(many, host))
    assert LoSpmm().unsupported(many, H200) is None
    hub = Problem(Op.SPMM, random_csr(1, 3000, [2000]), 8)
    assert "at most 1,024 non-zeros in a row" in str(LoSpmm().unsupported(hub, host))
    assert LoSpmm().unsupported(hub, H200) is None
    assert "expected a GPU" in str(LoSpmm(mode="paper").unsupported(hub, host))
    apart = np.zeros(60_001, np.int32)
    apart[1:] = 1
    scattered = Problem(Op.SPMM, Csr((60_000, 200_000), apart, np.zeros(1, np.int32), np.ones(1, np.float32)), 8)
    assert "at most 4 GiB of marks" in str(LoSpmm().unsupported(scattered, H200))
    assert LoSpmm(order="none").unsupported(scattered, H200) is None
    assert LoSpmm(tile_rows=4).unsupported(scattered, H200) is None


def test_names_of_former_modes_are_the_searches_as_published() -> None:
    assert LoSpmm(mode="lo_spmm").chooser(H200) is Chooser.PAPER
    assert LoSpmm(mode="lo_spmm_rank").chooser(H200) is Chooser.PAPER_RANK


def test_a_plan_tells_what_each_constraint_left() -> None:
    small = Problem(Op.SPMM, random_csr(9, 20, [3] * 8 + [0]), 33)
    plan = LoSpmm(order="none").build(small, find("host-simt"))
    assert plan.config["after_space"] >= plan.config["after_registers"] >= plan.config["after_utilisation"]
    assert plan.config["order"] == "none"
    assert plan.stored == 24
    assert plan.search is not None
    assert plan.search.candidates == plan.config["after_space"]


@pytest.mark.parametrize(
    ("lengths", "width", "cpt", "bytes_"),
    [([3, 2], 8, 1, 4), ([3, 2], 8, 2, 8), ([3, 0], 8, 1, 4)],
)
def test_addresses_are_as_aligned_as_what_moves_at_once(lengths: list[int], width: int, cpt: int, bytes_: int) -> None:
    small = Problem(Op.SPMM, random_csr(2, 5, lengths), width)
    plan = LoSpmm(tile_rows=2, threads=32, cpt=cpt).build(small, find("host-simt"))
    held = np.zeros(5 * width + 8, np.float32)
    start = -held.ctypes.data % 16 // 4 + bytes_ // 4
    shifted = held[start:][: 5 * width].reshape(5, width)
    out = np.full((2, width), np.nan, np.float32)
    plan.run((shifted,), out)
    if bytes_ > 4:
        with pytest.raises(OperandError, match=f"multiple of {bytes_} bytes"):
            plan.run((held[start - 1 :][: 5 * width].reshape(5, width),), out)
