"""CSR by rows: every instance on the host under sanitizers."""

from __future__ import annotations

from problems import matrices, run_checked
from tables import AWKWARD, DTYPES, TableTarget, every_instance, table_target

from spmark.impls.core.problem import Op, Problem
from spmark.impls.runtime.template import Instance
from spmark.impls.sparsetir.nohyb import SPMM_CSR_ROWS, planned

MATRICES = {**matrices(), **AWKWARD}
target = table_target(SPMM_CSR_ROWS)


@every_instance(SPMM_CSR_ROWS)
def test_every_instance(instance: Instance, target: TableTarget) -> None:
    coarsen = int(instance.values["coarsen"])
    cases = [("empty_rows", 33), ("under_32_rows", 32 * coarsen), ("hub", 1), ("one_by_one", 130), ("no_nonzeros", 8)]
    for name, width in (*cases, ("ten_thousand_in_a_row", 3), ("one_column", 65)):
        problem = Problem(Op.SPMM, MATRICES[name], width, DTYPES[str(instance.values["T"])])
        plan = planned(problem, target, coarsen)
        run_checked(plan, problem)
        assert plan.deterministic
        assert plan.stored == problem.matrix.nnz
