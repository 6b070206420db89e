"""RGMS for maps, output-stationary: every instance on the host."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from relational import kernel_map, relational_matrices, run_relational
from tables import DTYPES, TableTarget, every_instance, table_target

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.problem import DType
from spmark.impls.core.relational import RelationalCsr, RelationalProblem
from spmark.impls.formats.relational_rows import RelationalRows
from spmark.impls.kernels.relational_rows import RGMS_ROWS, RGMS_WIDE, RelationalRowsPlan, rows_instance
from spmark.impls.rgms_rows.plan import _chosen
from spmark.impls.runtime.device import find
from spmark.impls.runtime.template import Instance

MAP = kernel_map(200)
VALUES = np.random.default_rng(6).uniform(0.5, 1, MAP.nnz).astype(np.float32)
VALUED = RelationalCsr(replace(MAP.wide, values=VALUES), MAP.relations)
FEW = kernel_map(200, offsets=9)
VALUED_FEW = RelationalCsr(replace(FEW.wide, values=VALUES[: FEW.nnz]), FEW.relations)
target = table_target(RGMS_ROWS, RGMS_WIDE)


@pytest.mark.one_in(3)
@every_instance(RGMS_ROWS, RGMS_WIDE)
def test_every_instance(instance: Instance, target: TableTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    # So few thread blocks are at work at once that one walks over several tiles.
    monkeypatch.setattr(target, "spec", target.spec.model_copy(update={"num_sms": 1}))
    values = instance.values
    # Neither of the widths fills its tile or its steps.
    widths = (72, 40) if values.get("vector", 8) == 8 else (37, 67)
    schedule = {name: int(values[name]) for name in ("tile", "depth", "stages") if name in values}
    # Pieces of rows go through a buffer, in which a second run finds what the first one left.
    for splits, matrix, valued in ((1, MAP, VALUED), (3, FEW, VALUED_FEW)):
        problem = RelationalProblem(valued if values.get("valued") else matrix, *widths, DTYPES[str(values["T"])])
        held = RelationalRows.of(problem.matrix, int(values["rows"]), splits)
        plan = RelationalRowsPlan(problem, target, held, {}, **schedule)
        assert plan.deterministic
        assert plan.stored == held.stored
        run_relational(plan, problem, runs=min(splits, 2))


def test_values(target: TableTarget) -> None:
    problem = RelationalProblem(VALUED, 40, 32, DType.FLOAT16)
    run_relational(RelationalRowsPlan(problem, target, RelationalRows.of(VALUED, 64), {}, tile=32, depth=32), problem)


@pytest.mark.parametrize("schedule", [{"tile": 32, "depth": 32}, {"tile": 64, "stages": 4}])
@pytest.mark.parametrize("name", ["one_edge", "no_edges"])
def test_rows_without_edges_are_written(name: str, schedule: dict[str, int], target: TableTarget) -> None:
    matrix = relational_matrices()[name]
    matrix = RelationalCsr(replace(matrix.wide, values=np.ones_like(matrix.wide.values)), matrix.relations)
    problem = RelationalProblem(matrix, 16, 32, DType.FLOAT16)
    held = RelationalRows.of(problem.matrix, 64)
    out = run_relational(RelationalRowsPlan(problem, target, held, {}, **schedule), problem)
    assert np.count_nonzero(out.any(axis=1)) == problem.matrix.nnz


@pytest.mark.parametrize("width", [64, 72, 96, 200, 256, 512])
@pytest.mark.parametrize(("relations", "rows"), [(8, 100), (8, 1 << 14), (27, 100)])
def test_the_rule_names_kernels_by_warpgroups(width: int, relations: int, rows: int) -> None:
    edges = np.zeros(rows, np.int32), np.arange(rows), np.arange(rows)
    problem = RelationalProblem(RelationalCsr.of_edges((rows, rows), relations, edges), 64, width, DType.FLOAT16)
    device = find("host-simt").model_copy(update={"kind": DeviceKind.CUDA, "arch": "sm_90"})
    most, splits, schedule = _chosen(problem, device)
    assert rows_instance(problem, most, **schedule).template is RGMS_WIDE
    assert splits == 1 or relations > 8 or rows == 100, "few relations are not split where there are many rows"
