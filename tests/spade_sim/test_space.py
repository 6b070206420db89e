"""The configs of the accelerator: how many, which, and what they share with a CPU's loops."""

from __future__ import annotations

import pytest
from problems import random_csr

from spmark.impls.core.problem import Op, Problem
from spmark.impls.spade_sim.platform import SpadePlatform
from spmark.impls.tuning.platform import CommonLoops
from spmark.impls.tuning.space import key_of

PLATFORM = SpadePlatform()


def sized(num_rows: int, num_cols: int, width: int = 128) -> Problem:
    """Give a problem whose matrix has one non-zero."""
    return Problem(Op.SPMM, random_csr(num_rows, num_cols, [1] + [0] * (num_rows - 1)), width)


@pytest.mark.parametrize(
    ("shape", "width", "count"),
    [
        ((1000, 500_000), 128, 4 * (4 + 3) * 3 * 4 * 2),  # of four tile widths, the last covers the matrix: no barrier
        ((1000, 2_000_000), 128, 4 * (3 + 3) * 3 * 4 * 2),  # 1,024 columns would make 1,954 columns of tiles
        ((1000, 1 << 20), 128, 4 * (4 + 3) * 3 * 4 * 2),
        ((1000, (1 << 20) + 1), 128, 4 * (3 + 3) * 3 * 4 * 2),
        ((1000, 10_000), 64, 4 * (3 + 2) * 3 * 4 * 2),
        ((100, 1000), 6, 3 * 1 * 2 * 4 * 2),
        ((5, 1), 1, 1 * 1 * 1 * 4 * 2),
    ],
)
def test_the_space_has_as_many_configs_as_the_shape_tells_apart(shape: tuple[int, int], width: int, count: int) -> None:
    problem = sized(*shape, width)
    configs = list(PLATFORM.space(problem).configs())
    assert len(configs) == len({key_of(config) for config in configs}) == count
    assert PLATFORM.default(problem) in configs


def test_the_digest_is_that_of_the_configs() -> None:
    assert PLATFORM.space(sized(33, 9000)).digest == PLATFORM.space(sized(100, 60_000)).digest == "fca9869b4388c1f8"
    assert PLATFORM.space(sized(33, 9000, 64)).digest != "fca9869b4388c1f8"


@pytest.mark.parametrize(
    ("barrier", "order"),
    [(True, ("k2", "j2", "i2", "i1", "j1", "k1")), (False, ("k2", "i2", "j2", "i1", "j1", "k1"))],
)
def test_what_is_common_follows_the_papers_formula(barrier: bool, order: tuple[str, ...]) -> None:
    config = {"p_row": 32, "p_col": 1024, "d_split": 64, "barrier": barrier, "bypass": "none", "reorder": True}
    assert PLATFORM.common(config) == CommonLoops((32, 1024, 64), order)
