"""direct: which schedule its rule takes, and what it refuses."""

from __future__ import annotations

import pytest
from problems import random_csr, run_checked

from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.direct.plan import Direct
from spmark.impls.kernels.direct_spmm import direct_instance, usual_schedule
from spmark.impls.runtime.device import find

HOST = find("host-simt")
SHORT_ROWS = random_csr(50, 60, [2] * 50)
LONG_ROWS = random_csr(50, 900, [*[20] * 48, 900, 300])


@pytest.mark.parametrize("dtype", list(DType))
def test_the_rule_is_legal_for_every_width(dtype: DType) -> None:
    for matrix in (SHORT_ROWS, LONG_ROWS):
        for width in [*range(1, 70), 96, 100, 127, 128, 130, 256, 500, 512, 1000]:
            problem = Problem(Op.SPMM, matrix, width, dtype)
            found = usual_schedule(problem)
            assert direct_instance(problem, {**found, "threads": 128})
            assert width % found["vector"] == 0


@pytest.mark.full
def test_what_the_rule_takes_is_built() -> None:
    problem = Problem(Op.SPMM, LONG_ROWS, 64)
    plan = Direct().build(problem, HOST)
    run_checked(plan, problem)
    assert usual_schedule(problem).items() <= plan.config.items()


def test_widths_beyond_the_grid_are_refused() -> None:
    assert "expected J of at most" in str(Direct().unsupported(Problem(Op.SPMM, SHORT_ROWS, 33 * 65535), HOST))
    assert Direct().unsupported(Problem(Op.SPMM, SHORT_ROWS, 33), HOST) is None
