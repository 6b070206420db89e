"""What does not fit is refused with what was expected, what was found and what to do; nothing is converted unasked."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import spmark
from spmark.impls.core.errors import DeviceError, MatrixError, OperandError, ProblemError, UnsupportedError


@pytest.fixture
def op(a: Any) -> Any:
    return spmark.compile(a, width=6, use="scipy_cpu", device="cpu")


@pytest.fixture
def fixed(a: Any) -> Any:
    return spmark.compile(a, width=6, use="scipy_cpu", device="cpu", other_width="raise", values="constant")


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (np.ones((3, 3)), MatrixError, r"expected a sparse matrix .* found a numpy.ndarray of shape \(3, 3\): scipy"),
        ([[1.0]], MatrixError, "expected a sparse matrix .* found a builtins.list"),
        (
            (np.zeros((3, 2), int), 4),
            MatrixError,
            r"integers of shape \(2, edges\) .* found int64 of shape \(3, 2\) and 4",
        ),
        ((np.zeros((2, 3)), 4), MatrixError, r"expected \(edge_index, num_nodes\), .* found float64 of shape \(2, 3\)"),
        ((np.zeros((2, 3), int), None), MatrixError, r"found int64 of shape \(2, 3\) and None"),
        ((np.full((2, 3), 4), 4), MatrixError, "expected nodes below num_nodes = 4 in edge_index: "),
        ((np.full((2, 3), -1), 4), MatrixError, "expected nodes below num_nodes = 4 in edge_index: "),
        (sparse.coo_array((np.ones(1), (np.zeros(1, int),)), shape=(4,)), MatrixError, r"found a .* of shape \(4,\)"),
        (sparse.csr_array((0, 4), dtype=np.float32), MatrixError, "expected at least one row and one column"),
        (sparse.csr_array(np.ones((2, 2), complex)), MatrixError, "expected real values, found complex128"),
        (sparse.csr_array(np.ones((2, 2), np.int64)), ProblemError, "found one of int64: pass dtype, for instance"),
        (sparse.csr_array(np.full((2, 2), np.nan)), MatrixError, "expected finite values, found nan at position 0"),
        (sparse.csr_array(np.full((2, 2), np.inf, "f4")), MatrixError, "expected finite values, found inf at posit"),
    ],
)
def test_matrices(given: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        spmark.compile(given, width=2, device="cpu", budget_s=0)


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({"op": "spgemm"}, ProblemError, "expected an operator out of spmm, sddmm, found 'spgemm'"),
        ({"op": None}, ProblemError, "expected an operator out of spmm, sddmm, found None"),
        ({"width": 0}, ProblemError, "expected a width J of at least 1, found 0"),
        ({"width": [], "other_width": "raise"}, ProblemError, "expected a width J of at least 1, found none"),
        ({"width": "8"}, ProblemError, "expected a width J of at least 1, found '8'"),
        ({"width": 2**62}, ProblemError, r"expected a width J below 2\^31, found 4611686018427387904"),
        ({"dtype": "int32"}, ProblemError, "dtype out of float16, bfloat16, float32, float64, found 'int32'"),
        ({"dtype": "flaot32"}, ProblemError, r"found 'flaot32' \(did you mean float32\?\)"),
        ({"values": "fixed"}, ProblemError, "expected values out of variable, constant, found 'fixed'"),
        ({"other_width": "no"}, ProblemError, "expected other_width out of plan, raise, found 'no'"),
        ({"values": np.array(["variable", "x"])}, ProblemError, "expected values out of variable, constant, found"),
        ({"other_width": ["plan"]}, ProblemError, r"expected other_width out of plan, raise, found \['plan'\]"),
        ({"use": np.array(["scipy_cpu", "x"])}, ProblemError, "expected use out of auto, .*, found .*'x'"),
        ({"scaled": True}, ProblemError, "expected scaled only with sddmm"),
        ({"scaled": True, "dtype": "float64"}, ProblemError, "expected scaled only with sddmm"),
        ({"use": "scipy"}, ProblemError, r"expected use out of auto, cusparse, .* \(did you mean scipy_cpu\?\)"),
        ({"use": []}, ProblemError, "expected use to name at least one implementation, found none"),
        ({"use": ["scipy_cpu", 3]}, ProblemError, "expected use out of .* found 3"),
        ({"use": "nowhere.py:Mine"}, ProblemError, r"use: .*nowhere\.py"),
        ({"use": "direct"}, ProblemError, "use='direct': expected an implementation for cpu, found one for cuda, host"),
        ({"use": "direct", "op": "sddmm"}, ProblemError, "use='direct': expected sddmm, found an implementation of"),
        ({"use": None}, ProblemError, "use: expected a name of an implementation, or several, found None: leave use"),
        ({"use": 3}, ProblemError, "use: expected a name of an implementation, or several, found 3"),
        ({"budget_s": "3"}, ProblemError, "expected budget_s of at least 0 seconds, or None for no limit, found '3'"),
        ({"budget_s": -1}, ProblemError, "expected budget_s of at least 0 seconds, .* found -1"),
        ({"budget_s": float("nan")}, ProblemError, "expected budget_s of at least 0 seconds, .* found nan"),
        ({"budget_s": True}, ProblemError, "expected budget_s of at least 0 seconds, .* found True"),
        ({"cache": None}, ProblemError, "expected cache out of True, False, found None"),
        ({"scaled": None}, ProblemError, "expected scaled out of True, False, found None"),
        ({"device": None}, DeviceError, "expected a device out of auto, cuda, cpu, host-simt, found None"),
        ({"device": 0}, DeviceError, "expected a device out of auto, cuda, cpu, host-simt, found 0"),
        ({"device": "tpu"}, DeviceError, "expected a device out of auto, cuda, cpu, host-simt, found 'tpu'"),
    ],
)
def test_arguments_of_compile(how: dict[str, Any], error: type[Exception], message: str, a: Any) -> None:
    with pytest.raises(error, match=message):
        spmark.compile(a, **{"device": "cpu", "width": 6, "budget_s": 0, **how})


def test_a_plan_with_values_in_its_code_needs_constant_values(a: Any) -> None:
    with pytest.raises(ProblemError, match=r"use='lo_spmm': expected values='constant', since .* found 'variable'"):
        spmark.compile(a, width=32, use="lo_spmm", device="host-simt")


def test_the_only_implementation_says_why_it_refuses(a: Any) -> None:
    with pytest.raises(UnsupportedError, match=r"sparsetir_bsr: expected 16-bit floats .*, found float32"):
        spmark.compile(a, "sddmm", width=3, use="sparsetir_bsr", device="host-simt", scaled=True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda b: b.astype(np.float64), "expected dtype float32, found float64: convert the array, or compile with d"),
        (lambda b: b.astype(np.int32), "expected dtype float32, found int32: convert the array$"),
        (lambda b: b.astype(">f4"), "expected dtype float32, found >f4: convert the array$"),
        (lambda b: b[:24], r"operand B \(K, J\): expected shape \(25, J\), found \(24, 6\); A is I x K"),
        (lambda b: b[:, 0], r"expected shape \(25, J\), found \(25,\)"),
        (lambda b: b[:, :0], r"expected shape \(25, J\), found \(25, 0\); .* at least 1"),
        (lambda b: b[None], r"expected shape \(25, J\), found \(1, 25, 6\)"),
        (lambda b: b.tolist(), "expected a dense array of NumPy, CuPy or PyTorch, found a builtins.list: numpy"),
        (lambda b: None, "expected a dense array .* found a builtins.NoneType: pass one"),
        (lambda b: np.ma.masked_array(b, b > 0), r"expected a plain array, found a masked one: pass array.filled\(0\)"),
        (sparse.csr_array, r"expected a dense array .* found a scipy.sparse.*: its toarray\(\) makes one"),
    ],
)
def test_operands(make: Any, message: str, op: Any, b: np.ndarray) -> None:
    for _ in range(2):
        with pytest.raises(OperandError, match=message):
            op(make(b))
        op(b)


def test_the_number_of_operands(op: Any, b: np.ndarray) -> None:
    with pytest.raises(OperandError, match=r"spmm: expected operand B \(K, J\), found 2 operands"):
        op(b, b)
    with pytest.raises(OperandError, match="found 0 operands"):
        op()


def test_sddmm_names_the_operand_that_does_not_fit(a: Any, xy: Any) -> None:
    op, (x, y) = spmark.compile(a, "sddmm", width=6, use="scipy_cpu", device="cpu"), xy
    with pytest.raises(OperandError, match=r"sddmm: expected operand X \(I, J\) and operand Y \(K, J\), found 1"):
        op(x)
    with pytest.raises(OperandError, match=r"sddmm operand Y \(K, J\): expected shape \(25, 6\), found \(25, 5\)"):
        op(x, y[:, :5])
    with pytest.raises(OperandError, match=r"sddmm operand X \(I, J\): expected shape \(40, J\), found \(25, 6\)"):
        op(y, y)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda b: np.empty((40, 6)), "result out: expected dtype float32, found float64"),
        (lambda b: np.empty((40, 5), np.float32), r"result out: expected shape \(40, 6\), found \(40, 5\)"),
        (lambda b: np.empty((6, 40), np.float32).T, "result out: expected a row-major, contiguous, aligned array"),
        (lambda b: np.broadcast_to(np.float32(0), (40, 6)), "expected a row-major"),
        (bytes, "result out: expected a dense array .* found a builtins.bytes"),
        (lambda b: np.frombuffer(bytes(40 * 6 * 4), np.float32).reshape(40, 6), "expected a writable array"),
        (lambda b: np.frombuffer(bytearray(961), np.uint8)[1:].view(np.float32).reshape(40, 6), "aligned array"),
    ],
)
def test_results(make: Any, message: str, op: Any, b: np.ndarray) -> None:
    for _ in range(2):
        with pytest.raises(OperandError, match=message):
            op(b, out=make(b))
        op(b, out=np.empty((40, 6), np.float32))


def test_a_result_that_overlaps_an_operand_is_refused(a: Any) -> None:
    room = np.ones(40 * 6 + 25 * 6, np.float32)
    op = spmark.compile(a, width=6, use="scipy_cpu", device="cpu")
    dense = room[-25 * 6 :].reshape(25, 6)
    op(dense, out=room[: 40 * 6].reshape(40, 6))
    with pytest.raises(OperandError, match="expected memory of its own"):
        op(dense, out=room[100:340].reshape(40, 6))


def test_libraries_are_not_mixed(op: Any, b: np.ndarray, torch: Any) -> None:
    with pytest.raises(OperandError, match="result out: expected an array of the operands' library and device"):
        op(b, out=torch.empty(40, 6))
    with pytest.raises(OperandError, match=r"result out: expected .* library and device, found <class 'numpy"):
        op(torch.tensor(b), out=np.empty((40, 6), np.float32))
    with pytest.raises(OperandError, match=r"expected a dense tensor, found layout torch.sparse_coo"):
        op(torch.tensor(b).to_sparse())
    with pytest.raises(OperandError, match="expected a tensor on cpu or cuda, found one on meta"):
        op(torch.tensor(b).to("meta"))
    with pytest.raises(MatrixError, match=r"expected a sparse tensor of two dimensions .* found layout torch.strided"):
        spmark.compile(torch.tensor(b), width=6)


def test_spmm_casts_nothing_unasked(a: Any, b: np.ndarray) -> None:
    with pytest.raises(ProblemError, match=r"expected a matrix of float32, .* found one of float64: convert one"):
        spmark.spmm(a.astype(np.float64), b)
    with pytest.raises(ProblemError, match=r"expected a matrix of float16, .* found one of float32"):
        spmark.spmm(a, b.astype(np.float16))
    with pytest.raises(ProblemError, match=r"expected a dtype out of .* found 'int64'"):
        spmark.spmm(a, b.astype(np.int64))
    with pytest.raises(MatrixError, match=r"expected a sparse matrix .* found a builtins.list"):
        spmark.spmm(b.tolist(), b)
    with pytest.raises(OperandError, match=r"operand B \(K, J\): expected shape \(25, J\), found \(25,\)"):
        spmark.spmm(a, b[:, 0])


def test_a_type_that_numpy_lacks_is_not_converted_unasked(b: np.ndarray, torch: Any) -> None:
    at, ones = torch.arange(25), torch.ones(25).to(torch.float8_e4m3fn)
    narrow = torch.sparse_coo_tensor(torch.stack([at, at]), ones, check_invariants=False)
    with pytest.raises(ProblemError, match=r"expected a matrix of float32, .* found one of float8_e4m3fn: convert one"):
        spmark.spmm(narrow, torch.tensor(b))
    with pytest.raises(ProblemError, match="found one of float8_e4m3fn: pass dtype"):
        spmark.compile(narrow, width=6, device="cpu")
    op = spmark.compile(narrow, width=6, dtype="float32", use="scipy_cpu", device="cpu")
    np.testing.assert_array_equal(op(b), b)


@pytest.mark.parametrize("scaled", ["no", 1, None, np.array([0, 1])])
def test_scaled_is_true_or_false(scaled: Any, a: Any, xy: Any) -> None:
    with pytest.raises(ProblemError, match="expected scaled out of True, False, found "):
        spmark.sddmm(a, *xy, scaled=scaled)
    with pytest.raises(ProblemError, match="expected scaled out of True, False, found "):
        spmark.compile(a, "sddmm", width=6, use="scipy_cpu", device="cpu", scaled=scaled)


def test_values_beyond_the_range_of_the_type_are_refused(a: Any) -> None:
    large = a * np.float32(1e6)
    with pytest.raises(MatrixError, match=r"found -?\d+\.\d+ at .*, which is beyond the range of float16: scale"):
        spmark.compile(large, width=6, dtype="float16", device="cpu", budget_s=0)
    spmark.compile(large, width=6, dtype="bfloat16", device="cpu")
    with pytest.raises(MatrixError, match=r"found -?\d\.\d+e\+\d+ at .*, which is beyond the range of bfloat16"):
        spmark.compile(a.astype(np.float64) * 1e60, width=6, dtype="bfloat16", device="cpu")


def test_another_width_is_planned_or_refused_as_asked(op: Any, fixed: Any, b: np.ndarray) -> None:
    wide = np.ascontiguousarray(np.hstack([b, b]))
    np.testing.assert_allclose(op(wide), np.hstack([op(b)] * 2), rtol=1e-5, atol=1e-5)
    assert op.widths == (6, 12)
    with pytest.raises(ProblemError, match="expected J out of the widths that were compiled, 6, found 12: compile"):
        fixed(wide)


def test_only_a_planned_width_is_known_to_be_deterministic(op: Any) -> None:
    assert op.is_deterministic(6)
    with pytest.raises(ProblemError, match=r"spmm: expected a planned width \(6\), found 99: call plan\(width\) first"):
        op.is_deterministic(99)


@pytest.mark.parametrize("width", [[16], 6.0, True, 0, None])
def test_an_illegal_width_is_never_planned(width: Any, op: Any) -> None:
    for ask in (op.plan, op.is_deterministic):
        with pytest.raises(ProblemError, match=re.escape(f"expected a width J of at least 1, found {width!r}")):
            ask(width)
    assert op.widths == (6,)


def test_a_width_of_numpy_is_a_width(op: Any) -> None:
    op.plan(np.int64(16))
    assert repr(op.widths) == "(6, 16)"
    assert op.is_deterministic(np.int64(16))


def test_constant_values_stay(fixed: Any, a: Any) -> None:
    with pytest.raises(ProblemError, match="update_values: expected an operator compiled with values='variable'"):
        fixed.update_values(a.data)


def test_new_values_are_checked(op: Any, a: Any, b: np.ndarray) -> None:
    before = op(b)
    with pytest.raises(OperandError, match="update_values: expected dtype float32, found float64"):
        op.update_values(a.data.astype(np.float64))
    with pytest.raises(OperandError, match=rf"update_values: expected shape \({a.nnz}\), found \({a.nnz - 1},\)"):
        op.update_values(a.data[1:])
    np.testing.assert_array_equal(op(b), before)
