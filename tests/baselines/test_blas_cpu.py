from __future__ import annotations

import numpy as np
import pytest

from spmark.impls.blas_cpu.plan import BlasCpu
from spmark.impls.core.problem import Csr, Op, Problem
from spmark.impls.runtime.device import find


@pytest.mark.parametrize(("op", "what"), [(Op.SPMM, "A"), (Op.SDDMM, r"X Y\^T")])
def test_refuses_a_dense_form_beyond_the_limit(op: Op, what: str) -> None:
    num = 40_000
    matrix = Csr((num, num), np.zeros(num + 1, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32))
    reason = BlasCpu().unsupported(Problem(op, matrix, 8), find("cpu"))
    assert reason is not None
    assert reason.startswith(what.replace("\\", ""))
    assert "40000 x 40000 matrix takes 6,400,000,000 bytes" in reason
    assert "2,147,483,648" in reason
    assert BlasCpu(max_dense_bytes=4 * num * num).unsupported(Problem(op, matrix, 8), find("cpu")) is None
