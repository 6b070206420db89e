"""What the comparison of proxies with kernels says, with races that the estimate times."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from problems import random_csr
from races import made_up_race
from rank_fakes import estimated_race

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.interfaces import Built
from spmark.impls.core.problem import Op, Problem
from spmark.impls.lo_spmm.reorder import Reordering
from spmark.impls.lo_spmm.search import Pins, TileSpace, explore
from spmark.impls.lo_spmm.tuning import config_of
from spmark.impls.runtime.device import shipped_calibration
from spmark.impls.tuning.race import Race
from spmark.impls.tuning.space import key_of
from spmark.studies.lo_spmm.compared import compare, spread_out

pytestmark = pytest.mark.full

H200 = DeviceSpec.load(shipped_calibration("nvidia-h200"))


@pytest.fixture(scope="module")
def space() -> TileSpace:
    lengths = np.random.default_rng(7).binomial(200, 0.1, 600).tolist()
    return explore(Problem(Op.SPMM, random_csr(600, 200, lengths), 512), H200, Reordering.GREEDY, Pins())


def test_proxies_that_order_alike_and_backwards(space: TileSpace) -> None:
    sizes = spread_out(space)
    alike = compare("a", space, partial(estimated_race, space), sizes)
    assert (alike.tau, alike.regret) == (pytest.approx(1), 0)
    assert alike.implementation_version

    def opened(proxies: bool) -> Race[Built]:
        """Proxies are the faster the slower their kernels are."""
        us = {key_of(config_of(size)): us for size, us in zip(alike.sizes, alike.real_us, strict=True)}
        return made_up_race(lambda config: 1 / us[key_of(config)] if proxies else us[key_of(config)])[0]

    backwards = compare("a", space, opened, sizes)
    assert backwards.tau == pytest.approx(-1)
    assert backwards.regret == pytest.approx(max(backwards.real_us) / min(backwards.real_us) - 1)
    assert backwards.tau_of_estimate == pytest.approx(alike.tau_of_estimate)


def test_what_cannot_be_built_is_left_out(space: TileSpace) -> None:
    sizes = spread_out(space)
    broken = sizes[0].tile_rows
    found = compare("a", space, partial(estimated_race, space, broken=broken), sizes)
    assert sorted(found.sizes) == sorted(size for size in sizes if size.tile_rows != broken)
    nothing = compare("a", space, partial(estimated_race, space, broken=broken), [sizes[0]])
    assert nothing.sizes == ()
    assert math.isnan(nothing.regret)
    assert math.isnan(nothing.tau)
