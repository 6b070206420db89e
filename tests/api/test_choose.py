"""Which implementation an operator takes, and what it says of that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from outside_code import nothing_loaded
from scipy import sparse

import spmark
from spmark.impls.auto import portfolio
from spmark.impls.core.errors import BuildError, ProblemError
from spmark.impls.core.problem import Op
from spmark.impls.runtime.device import find
from spmark.impls.tuning import timer


def test_a_race_takes_the_fastest_and_tells_of_all(a: Any, b: np.ndarray, close: Any, made_up_times: None) -> None:
    op = spmark.compile(a, width=6, device="cpu")
    close(op(b), a.astype(np.float64) @ b)
    told = op.explain().splitlines()
    assert told[0] == f"spmark spmm of 40 x 25 with {a.nnz} non-zeros, float32, J = 6, {find('cpu').name}"
    assert told[1].startswith("J = 6: numba_cpu (threads = ")
    assert told[2].startswith(f"  storage: {a.nnz} elements, padding 0.0%, ")
    assert told[3].startswith("  seconds of building: convert 0.0")
    assert told[-4:] == [
        "  candidates, with the median of their times from cold caches:",
        "    numba_cpu: 30.0 us, chosen",
        "    scipy_cpu: 90.0 us",
        "  3.00 times as fast as the baseline scipy_cpu",
    ]


def test_named_ones_alone_compete(a: Any, made_up_times: None) -> None:
    told = spmark.compile(a, width=6, use=["scipy_cpu", "blas_cpu"], device="cpu", budget_s=1e-9).explain()
    assert "J = 6: scipy_cpu" in told
    assert "blas_cpu: not measured: not tried: the search's budget ended after 1 candidates" in told
    assert "numba_cpu" not in told
    assert "times as fast" not in told


@pytest.mark.usefixtures(nothing_loaded.__name__)
def test_a_class_in_a_file_competes(a: Any, b: np.ndarray, close: Any) -> None:
    own = f"{Path(__file__).parents[2]}/examples/mykernel/mykernel.py:MyKernel"
    for device in ("cpu", "host-simt"):
        op = spmark.compile(a, width=6, use=own, device=device)
        close(op(b), a.astype(np.float64) @ b)
        assert "J = 6: mykernel" in op.explain()
    told = spmark.compile(a, width=6, use=["scipy_cpu", own], device="cpu", cache=False).explain()
    assert "    mykernel: " in told


def test_without_a_budget_the_first_that_fits_is_taken(a: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer, "PlanTimer", None)
    for device, name in (("cpu", "scipy_cpu"), ("host-simt", "direct")):
        told = spmark.compile(a, width=6, device=device, budget_s=0).explain()
        assert f"J = 6: {name}" in told
        assert "nothing was measured" in told
    sddmm = spmark.compile(a, "sddmm", width=6, device="host-simt").explain()
    assert "nothing was measured" in sddmm, "a device without times has no race"


def test_a_real_race_on_the_host(a: Any, b: np.ndarray, close: Any) -> None:
    op = spmark.compile(a, width=6, use=["scipy_cpu", "blas_cpu"], device="cpu", cache=False)
    close(op(b), a.astype(np.float64) @ b)
    assert op.explain().count(" us") == 2


def test_the_plain_kernels_serve_what_no_implementation_takes(a: Any) -> None:
    told = spmark.compile(a, width=6, dtype="float64", device="host-simt").explain()
    assert "J = 6: plain (lanes = 8)" in told


def test_one_that_refuses_makes_room_for_the_next(a: Any) -> None:
    names = ["sparsetir_bsr", "direct"]
    assert "J = 6: direct" in spmark.compile(a, width=6, use=names, device="host-simt").explain()
    with pytest.raises(BuildError, match=r"expected one of sparsetir_bsr, sparsetir_srbcrs to take .* found none"):
        spmark.compile(a, width=6, use=["sparsetir_bsr", "sparsetir_srbcrs"], device="host-simt")


def test_the_device_can_be_a_spec(a: Any) -> None:
    spec = find("cpu")
    op = spmark.compile(a, width=6, use="scipy_cpu", device=spec)
    assert op.device is spec
    assert (op.op, op.pattern.nnz) == (Op.SPMM, a.nnz)


def test_pinned_tunables_of_a_choice_travel_with_the_operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uneven = np.zeros((60, 40), np.float32)
    uneven[3], uneven[:, 2] = 1, 2
    matrix = sparse.csr_array(uneven)
    monkeypatch.setattr(portfolio, "CSR", portfolio.CELL)
    op = spmark.compile(matrix, width=8, device="host-simt", budget_s=0, runs=5)
    assert "J = 8: liteform (format = cell" in op.explain(), "the rule's choice has a tunable"
    op.save(tmp_path / "op")
    again = spmark.load(tmp_path / "op")
    assert again.explain().splitlines()[1] == op.explain().splitlines()[1]
    b = np.ones((40, 8), np.float32)
    again.update_values(3 * matrix.data)
    np.testing.assert_allclose(again(b), 3 * matrix @ b, rtol=1e-5)


@pytest.mark.parametrize("runs", [0, -1, True, 1.5, "many"])
def test_runs_are_a_count(runs: Any, a: Any) -> None:
    with pytest.raises(ProblemError, match="expected runs to be an integer of at least 1, or None"):
        spmark.compile(a, width=6, runs=runs, device="cpu")


def test_an_operator_without_a_width_plans_at_its_first_product(a: Any, b: np.ndarray, close: Any) -> None:
    op = spmark.compile(a, width=(), use="scipy_cpu", device="cpu")
    assert op.widths == ()
    assert "J = none yet" in repr(op)
    close(op(b), a.astype(np.float64) @ b)
    assert op.widths == (6,)


def test_a_width_is_tuned_later(a: Any, b: np.ndarray, close: Any, made_up_times: None) -> None:
    op = spmark.compile(a, width=[6, 7], device="cpu", budget_s=0)
    op.update_values(2 * a.data)
    assert "J = 6: scipy_cpu" in op.explain()
    op.tune(6)
    assert "J = 6: numba_cpu" in op.explain()
    assert "J = 7: scipy_cpu" in op.explain()
    close(op(b), 2 * a.astype(np.float64) @ b)
    op.update_values(3 * a.data)
    close(op(b), 3 * a.astype(np.float64) @ b)
    with pytest.raises(ProblemError, match="expected budget_s of at least 0 seconds"):
        op.tune(6, budget_s=-1)
