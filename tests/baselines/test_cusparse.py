"""What cuSPARSE's plans refuse without a GPU."""

from __future__ import annotations

import pytest
from problems import matrices

from spmark.impls.core.problem import Op, Problem
from spmark.impls.cusparse.plan import CuSparse, CuSparseBest
from spmark.impls.runtime.device import find


@pytest.mark.parametrize("how", [CuSparse(), CuSparseBest()])
@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (Problem(Op.SPMM, matrices()["no_nonzeros"], 32), "without non-zeros"),
        (Problem(Op.SDDMM, matrices()["wide"], 32, scaled=True), "does not multiply by A"),
    ],
)
def test_what_the_library_does_not_take_is_refused(how: CuSparse, problem: Problem, words: str) -> None:
    assert words in (how.unsupported(problem, find("host-simt")) or "")
