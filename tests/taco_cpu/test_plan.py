"""Plans of loop nests: what a config gives, what is refused, and accounts of cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from problems import dense_operands, matrices, problems, run_checked

from spmark.impls.core.machine import allowed_cores
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.runtime.device import find
from spmark.impls.runtime.toolchain import find_gcc
from spmark.impls.taco_cpu.plan import TacoCpu
from spmark.impls.taco_cpu.space import CSR, space_of


@pytest.mark.one_in(3)
@pytest.mark.parametrize("op", Op)
@pytest.mark.parametrize("width", [1, 3, 33, 130])
def test_every_drawn_config_gives_the_result(op: Op, width: int) -> None:
    problem = problems()[f"{op}-empty_rows-J{width}-float32"]
    for config in space_of(op).sample(width, 4):
        run_checked(TacoCpu(**config).build(problem, find("cpu")), problem)


def test_a_plan_says_what_it_is_and_what_it_holds() -> None:
    problem = Problem(Op.SPMM, matrices()["hub"], 32)
    plan = TacoCpu().build(problem, find("cpu"))
    assert plan.config == {**CSR, "threads": len(allowed_cores())}
    assert plan.stored == problem.matrix.nnz
    assert plan.device_bytes == problem.matrix.nbytes
    assert plan.phases_s.keys() == {"convert", "compile"}
    assert plan.search is None
    half = TacoCpu().build(Problem(Op.SPMM, matrices()["hub"], 32, DType.FLOAT16), find("cpu"))
    assert half.device_bytes == problem.matrix.nbytes + 4 * 32 * (2500 + 40), "float16 is widened to workspaces"


@pytest.mark.parametrize("op", Op)
def test_float16_is_rounded_before_the_product_and_behind_it(op: Op) -> None:
    half = Problem(op, matrices()["hub"], 20, DType.FLOAT16, scaled=op is Op.SDDMM)
    values = half.values.astype(np.float32)
    assert (values != half.matrix.values).any()
    wide = Problem(op, replace(half.matrix, values=values), 20, scaled=op is Op.SDDMM)
    operands = dense_operands(half)
    found, expected = np.empty(half.out_shape, np.float16), np.empty(half.out_shape, np.float32)
    TacoCpu().build(half, find("cpu")).run([operand.astype(np.float16) for operand in operands], found)
    TacoCpu().build(wide, find("cpu")).run(
        [operand.astype(np.float16).astype(np.float32) for operand in operands], expected
    )
    np.testing.assert_array_equal(found, expected.astype(np.float16))


@pytest.mark.parametrize(
    ("tunables", "reason"),
    [
        ({"isplit": 6}, "expected isplit as a power of two of at most 65,536, found 6"),
        ({"order": "i1 i0"}, "expected order to name each of"),
        ({"jsplit": 4, "order": "i1 i0 j1 k1 k0 j0"}, "expected j1 directly outside of j0"),
    ],
)
def test_illegal_tunables_are_refused(tunables: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        TacoCpu(**tunables)


def test_what_an_operator_has_no_nest_for_is_unsupported() -> None:
    device, columns_first = find("cpu"), TacoCpu(jsplit=8, order="j1 i1 i0 k1 k0 j0")
    spmm, sddmm = (Problem(op, matrices()["hub"], 8) for op in (Op.SPMM, Op.SDDMM))
    assert columns_first.unsupported(spmm, device) == "spmm: expected i1 outside of j1, found j1 i1 i0 k1 k0 j0"
    assert columns_first.unsupported(sddmm, device) is None
    assert "a dense matrix" in str(TacoCpu(formats="UUUU").unsupported(sddmm, device))


def test_a_machine_without_a_compiler_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    find_gcc.cache_clear()
    monkeypatch.setenv("PATH", "/nonexistent")
    problem = Problem(Op.SPMM, matrices()["hub"], 8)
    assert TacoCpu().unsupported(problem, find("cpu")) == (
        "expected g++ on PATH to compile for the host, found none: install the package g++"
    )
    monkeypatch.undo()
    assert TacoCpu().unsupported(problem, find("cpu")) is None
