"""direct: which schedule its rule takes, what it refuses, and that pinned tunables are what is built."""

from __future__ import annotations

import pytest
from problems import random_csr, run_checked

from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.direct.plan import Direct
from spmark.impls.kernels.direct_spmm import direct_instance
from spmark.impls.runtime.device import find

HOST = find("host-simt")
SHORT_ROWS = random_csr(50, 60, [2] * 50)
LONG_ROWS = random_csr(50, 900, [*[20] * 48, 900, 300])


def chosen(width: int, dtype: DType = DType.FLOAT32, matrix=SHORT_ROWS, **pinned: int) -> dict[str, int]:
    return Direct(**pinned).schedule(Problem(Op.SPMM, matrix, width, dtype))


@pytest.mark.parametrize("dtype", list(DType))
def test_the_rule_is_legal_for_every_width(dtype: DType) -> None:
    for matrix in (SHORT_ROWS, LONG_ROWS):
        for width in [*range(1, 70), 96, 100, 127, 128, 130, 256, 500, 512, 1000]:
            found = chosen(width, dtype, matrix)
            assert direct_instance(Problem(Op.SPMM, matrix, width, dtype), {**found, "threads": 128})
            assert width % found["vector"] == 0


@pytest.mark.full
def test_pinned_tunables_are_built() -> None:
    problem = Problem(Op.SPMM, LONG_ROWS, 64)
    several = {"lanes": 8, "vectors": 2, "unroll": 2, "rows": 4, "longest": 100}
    for pinned in (several, {"parts": 4, "longest": 100}, {"parts": 2, "lanes": 16}, {"unroll": 8}):
        assert Direct(**pinned).unsupported(problem, HOST) is None
        plan = Direct(**pinned).build(problem, HOST)
        run_checked(plan, problem)
        assert pinned.items() <= plan.config.items()


def test_what_does_not_fit_is_refused() -> None:
    for pinned in ({"lanes": 12}, {"vectors": 3}, {"unroll": 3}, {"parts": 3}, {"rows": 5}, {"longest": -1}):
        with pytest.raises(ValueError, match=f"expected {next(iter(pinned))}"):
            Direct(**pinned)
    odd = Problem(Op.SPMM, SHORT_ROWS, 33)
    for pinned in ({"vectors": 2}, {"unroll": 2}, {"unroll": 8}, {"parts": 2}):
        assert "with loads of 16 bytes" in str(Direct(**pinned).unsupported(odd, HOST))
    even = Problem(Op.SPMM, SHORT_ROWS, 32)
    for pinned in (
        {"parts": 2, "rows": 2},
        {"parts": 4, "lanes": 16},
        {"unroll": 8, "lanes": 4},
        {"parts": 2, "vectors": 2},
    ):
        assert "found vector: 4" in str(Direct(**pinned).unsupported(even, HOST))
    assert Direct(lanes=4).unsupported(odd, HOST) is None
    wide = Problem(Op.SPMM, SHORT_ROWS, 5 * 65535)
    assert "expected J of at most" in str(Direct(lanes=4).unsupported(wide, HOST))
