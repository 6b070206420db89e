from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from problems import matrices

from spmark.impls.core.errors import OperandError
from spmark.impls.core.operands import ArrayFacts, HostPlan, check_operands
from spmark.impls.core.problem import DType, Op, Problem

SPMM = ((10, 8),), (6, 8), DType.FLOAT32
SDDMM = ((6, 8), (10, 8)), (21,), DType.FLOAT32


def good(shapes: tuple[Any, ...] = SPMM) -> list[np.ndarray]:
    return [np.full(shape, 0.5, np.float32) for shape in (*shapes[0], shapes[1])]


def on_gpu(shape: tuple[int, ...], number: int | None = 0, at: int = 1 << 20, **change: Any) -> SimpleNamespace:
    """Give what an array of CuPy or PyTorch shows of itself."""
    facts = {"shape": shape, "typestr": "<f4", "data": (at, False), "strides": None, "version": 3} | change
    array = SimpleNamespace(__cuda_array_interface__=facts)
    if number is not None:
        array.__dlpack_device__ = lambda: (2, number)
    return array


def refused(arrays: list[Any], shapes: tuple[Any, ...] = SPMM, **keywords: Any) -> str:
    with pytest.raises(OperandError) as caught:
        check_operands(*shapes, arrays[:-1], arrays[-1], **keywords)
    return str(caught.value)


def test_good_arrays_pass_and_give_their_facts() -> None:
    arrays = good(SDDMM)
    arrays[0].setflags(write=False)
    facts = check_operands(*SDDMM, arrays[:2], arrays[2], device="cpu")
    assert [one.address for one in facts] == [array.ctypes.data for array in arrays]
    assert [one.writable for one in facts] == [False, True, True]
    assert facts[1] == ArrayFacts((10, 8), np.dtype("float32"), None, arrays[1].ctypes.data, True, "cpu")


def test_shape() -> None:
    b, out = good()
    assert refused([b[:9], out]) == (
        "spmm operand B (K, J): expected shape (10, 8), found (9, 8); A is I x K and the dense width is J"
    )
    assert refused([b, out.reshape(-1)]).startswith("spmm result out (I, J): expected shape (6, 8), found (48,)")
    x, y, values = good(SDDMM)
    assert "sddmm operand Y (K, J): expected shape (10, 8), found (6, 8)" in refused([x, x.copy(), values], SDDMM)
    assert "sddmm result out (nnz,): expected shape (21,), found (20,)" in refused([x, y, values[1:]], SDDMM)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", ">f4"])
def test_dtype(dtype: str) -> None:
    b, out = good()
    assert f"B (K, J): expected dtype float32, found {np.dtype(dtype)}; convert it" in refused([b.astype(dtype), out])


def test_layout() -> None:
    b, out = good()
    assert "row-major, contiguous array, found strides of (4, 40) bytes for shape (10, 8)" in refused(
        [np.asfortranarray(b), out]
    )
    assert "strides of (64, 8) bytes" in refused([np.repeat(b, 2, axis=1)[:, ::2], out])
    assert "strides of (-32, 4) bytes" in refused([b[::-1], out])


def test_alignment() -> None:
    b, out = good()
    raw = np.zeros(b.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 16
    odd = np.ndarray(b.shape, b.dtype, raw.data, start + 2)
    assert "expected an address that is a multiple of 4 bytes, found 0x" in refused([odd, out])
    by_four = np.ndarray(b.shape, b.dtype, raw.data, start + 4)
    check_operands(*SPMM, [by_four], out)
    assert "multiple of 16 bytes" in refused([by_four, out], alignment=16)


def test_empty_result_has_no_address_to_align() -> None:
    nothing = on_gpu((0,), at=0)
    operands = [on_gpu((6, 8)), on_gpu((10, 8), at=1 << 21)]
    check_operands(((6, 8), (10, 8)), (0,), DType.FLOAT32, operands, nothing, alignment=16)


def test_number_of_operands() -> None:
    b, out = good()
    assert refused([out]) == "spmm: expected 1 operands in a tuple, found 0"
    assert refused([b, b, out]) == "spmm: expected 1 operands in a tuple, found 2"
    with pytest.raises(OperandError, match="spmm: expected 1 operands in a tuple, found a ndarray"):
        check_operands(*SPMM, b, out)  # type: ignore[arg-type]


def test_read_only_result() -> None:
    b, out = good()
    out.setflags(write=False)
    assert "result out (I, J): expected a writable array, found a read-only one" in refused([b, out])


def test_overlap() -> None:
    held = np.zeros(200, np.float32)
    b, out = held[:80].reshape(10, 8), held[79:127].reshape(6, 8)
    assert "result out (I, J): expected memory of its own, found some of spmm operand B" in refused([b, out])
    check_operands(*SPMM, [b], held[80:128].reshape(6, 8))
    same = np.zeros((6, 8), np.float32)
    check_operands(((6, 8), (6, 8)), (21,), DType.FLOAT32, [same, same], np.zeros(21, np.float32))


def test_what_is_no_array() -> None:
    b, out = good()
    assert "B (K, J): expected a NumPy array, found a builtins.list; convert it" in refused(
        [b.tolist(), out], device="cpu"
    )
    assert "out (I, J): expected an array on cuda:0, found a builtins.NoneType" in refused(
        [on_gpu((10, 8)), None], device="cuda:0"
    )
    assert "on the host or a GPU, found a builtins.int" in refused([3, out])


def test_device() -> None:
    b, out = good()
    far = on_gpu((6, 8)), on_gpu((10, 8), at=1 << 21)
    assert "B (K, J): expected an array on cpu, found one on cuda:0; copy it" in refused([far[1], out])
    assert "B (K, J): expected an array on cuda:0, found one on cpu" in refused([b, far[0]])
    assert "expected an array on cpu, found one on cuda" in refused([far[1], far[0]], device="cpu")
    assert "on cuda:0, found one on cuda:1" in refused([on_gpu((10, 8), 1), far[0]])
    check_operands(*SPMM, [far[1]], far[0], device="cuda:0")
    check_operands(*SPMM, [far[1]], far[0], device="cuda")
    unsaid = on_gpu((10, 8), None, at=1 << 21)
    check_operands(*SPMM, [unsaid], far[0], device="cuda:0")
    assert "on cpu, found one on cuda" in refused([unsaid, out])


def test_gpu_arrays_are_held_to_the_same_rules() -> None:
    out = on_gpu((6, 8))
    assert "dtype float32, found float64" in refused([on_gpu((10, 8), typestr="<f8"), out])
    assert "strides of (4, 40)" in refused([on_gpu((10, 8), strides=(4, 40)), out])
    assert "multiple of 4 bytes, found 0x200001" in refused([on_gpu((10, 8), at=0x200001), out])
    assert "memory of its own" in refused([on_gpu((10, 8), at=(1 << 20) + 100), out])
    assert "read-only" in refused([on_gpu((10, 8), at=1 << 21), on_gpu((6, 8), data=(1 << 20, True))])


class Doubled(HostPlan):
    """Writes twice the operand, and keeps what it was given."""

    def compute(self, *arrays: Any, **nothing: Any) -> None:
        self.seen = arrays
        arrays[-1][:] = 2.001 * arrays[0][: len(arrays[-1])]


def test_a_host_plan_widens_and_rounds_once() -> None:
    problem = Problem(Op.SPMM, matrices()["under_32_rows"], 5, DType.FLOAT16)
    plan, out = Doubled(), np.full(problem.out_shape, np.nan, np.float16)
    plan.hold(problem, np.zeros(3, np.int32))
    dense = np.random.default_rng(0).standard_normal(problem.operand_shapes[0]).astype(np.float16)
    plan.run([dense], out)
    wide, result = plan.seen
    assert wide.dtype == result.dtype == np.float32
    np.testing.assert_array_equal(wide, dense)
    np.testing.assert_array_equal(out, result.astype(np.float16))
    assert plan.device_bytes == 4 * (dense.size + out.size) + 12
    with pytest.raises(OperandError, match="dtype float16, found float32"):
        plan.run([dense.astype(np.float32)], out)
