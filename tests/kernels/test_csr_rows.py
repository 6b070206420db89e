"""CSR by rows: every instance on the host under sanitizers."""

from __future__ import annotations

import numpy as np
import pytest
from problems import dense_operands, matrices

from spmark.impls.core.operators import reference, tolerance
from spmark.impls.core.problem import Op, Problem
from spmark.impls.kernels.csr_rows import SPMM_CSR_ROWS, CsrRowsPlan
from spmark.impls.runtime.device import find
from spmark.impls.runtime.target import open_target
from spmark.impls.runtime.template import C_TYPES, Instance

DTYPES = {name: dtype for dtype, name in C_TYPES.items()}


@pytest.mark.parametrize("instance", list(SPMM_CSR_ROWS.instances()), ids=lambda i: i.expression)
def test_every_instance(instance: Instance) -> None:
    coarsen = int(instance.values["coarsen"])
    for name, width in (("empty_rows", 33), ("under_32_rows", 32 * coarsen), ("hub", 1), ("one_by_one", 130)):
        problem = Problem(Op.SPMM, matrices()[name], width, DTYPES[str(instance.values["T"])])
        plan = CsrRowsPlan(problem, open_target(find("host-simt")), coarsen)
        operands = dense_operands(problem)
        out = np.full(problem.out_shape, np.nan, problem.dtype.numpy)
        plan.run(operands, out)
        assert reference(problem, operands).max_error(out) <= tolerance(problem)
        assert plan.deterministic
        assert plan.stored == problem.matrix.nnz
