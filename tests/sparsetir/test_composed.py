"""SparseTIR's fixed CSR schedule, and its compositions of formats: what they pin, refuse and find."""

from __future__ import annotations

import numpy as np
import pytest
from problems import random_csr, run_checked

from spmark.impls.core.errors import SweepError
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.runtime.device import find
from spmark.impls.sparsetir.nohyb import SparseTirNoHyb
from spmark.impls.table import create

MATRIX = random_csr(40, 50, np.random.default_rng(0).integers(0, 50, 40).tolist())
HOST = find("host-simt")


@pytest.mark.parametrize(("width", "coarsen"), [(1, 1), (32, 1), (63, 1), (64, 2), (512, 2)])
def test_the_papers_schedule(width: int, coarsen: int) -> None:
    plan = SparseTirNoHyb().build(Problem(Op.SPMM, MATRIX, width), HOST)
    assert plan.config == {"coarsen": coarsen}
    assert plan.search is None


def test_a_sweep_pins_the_composition() -> None:
    problem = Problem(Op.SPMM, MATRIX, 24, DType.FLOAT16)
    pinned = {"block": 32, "min_density": 0.3, "max_width": 8, "fold": False}
    plan = create("sparsetir_composed", pinned).build(problem, HOST)
    assert plan.config == {**pinned, "vector": 8, "lanes": 8}
    run_checked(plan, problem)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"block": 8}, "block out of 0, 16, 32, found 8"),
        ({"min_density": 0}, "density"),
        ({"max_width": 5}, "power of two"),
    ],
)
def test_illegal_tunables_are_refused(config: dict[str, object], words: str) -> None:
    with pytest.raises(SweepError, match=words):
        create("sparsetir_composed", config)
