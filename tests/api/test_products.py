"""Products of every kind of input against SciPy, on the CPU; PyTorch's kinds where PyTorch is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import spmark
from spmark.impls.core.problem import Csr

FORMATS = ("csr", "csc", "coo", "bsr", "dia", "dok", "lil")
DTYPES = ("float32", "float64", "float16")


def halves(a: Any) -> Any:
    """Round the values to what float16 holds."""
    return sparse.csr_array(a.toarray().astype(np.float16).astype(np.float32))


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("old", [False, True])
def test_every_format_of_scipy(kind: str, old: bool, a: Any, b: np.ndarray, close: Any) -> None:
    given_ = (sparse.coo_matrix(a) if old else sparse.coo_array(a)).asformat(kind)
    c = spmark.spmm(given_, b)
    assert (type(c), c.dtype, c.flags.c_contiguous) == (np.ndarray, np.float32, True)
    close(c, a.astype(np.float64) @ b)


@pytest.mark.parametrize("dtype", DTYPES)
def test_types_of_numpy(dtype: str, a: Any, b: np.ndarray, xy: Any, close: Any, sddmm_of: Any) -> None:
    matrix, dense = halves(a), b.astype(dtype)
    op = spmark.compile(matrix, width=6, dtype=dtype, use="scipy_cpu", device="cpu")
    c = op(dense)
    assert (c.dtype, op.dtype) == (dtype, dtype)
    close(c, matrix.astype(np.float64) @ dense, dtype)
    x, y = (one.astype(dtype) for one in xy)
    for scaled in (False, True):
        op = spmark.compile(matrix, "sddmm", width=6, dtype=dtype, use="scipy_cpu", scaled=scaled, device="cpu")
        close(op(x, y), sddmm_of(matrix.astype(np.float64), x, y, scaled), dtype)


def test_float64_keeps_what_float32_would_round(a: Any, b: np.ndarray) -> None:
    matrix = a.astype(np.float64)
    matrix.data += 2.0**-40
    c = spmark.spmm(matrix, b.astype(np.float64))
    np.testing.assert_allclose(c, matrix @ b.astype(np.float64), rtol=1e-13, atol=1e-13)


def test_values_that_a_type_holds_are_widened(a: Any, b: np.ndarray, close: Any) -> None:
    for kind in (np.bool_, np.int8, np.int32, np.float32):
        narrow = a.astype(kind)
        close(spmark.spmm(narrow, b.astype(np.float64)), narrow.astype(np.float64) @ b.astype(np.float64), "float64")


def test_duplicates_are_added_up_and_columns_sorted(b: np.ndarray, xy: Any, close: Any, sddmm_of: Any) -> None:
    rows, cols, values = np.array([3, 3, 0, 3]), np.array([9, 2, 24, 9]), np.array([1, 2, 3, 4], np.float32)
    coo = sparse.coo_array((values, (rows, cols)), shape=(40, 25))
    unsorted = sparse.csr_array((values, [9, 2, 9, 24], [0, 3, 3, *[4] * 38]), shape=(40, 25))
    before = unsorted.indices.copy()
    for matrix in (coo, unsorted):
        close(spmark.spmm(matrix, b), matrix.toarray().astype(np.float64) @ b)
        d = spmark.sddmm(matrix, *xy, scaled=True)
        assert d.shape == (len(set(zip(*matrix.nonzero(), strict=True))),)
        close(d, sddmm_of(matrix, *xy, True))
    np.testing.assert_array_equal(unsorted.indices, before, "the argument stays as it is")


def duplicated(dtype: Any) -> Any:
    """Give the largest value of a type twice in one place of a 2 x 3 matrix."""
    most = np.array(1 if dtype is np.bool_ else np.iinfo(dtype).max, dtype)
    return sparse.coo_array((np.stack([most, most, most]), ([0, 0, 1], [1, 1, 2])), shape=(2, 3))


@pytest.mark.parametrize("kind", ["coo", "csr", "csc"])
@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint8, np.int16, np.int32])
def test_duplicates_of_a_narrow_type_are_added_up_without_overflow(kind: str, dtype: Any, close: Any) -> None:
    coo = duplicated(dtype)
    arrays = {"csr": (coo.data, coo.col, [0, 2, 3]), "csc": (coo.data, coo.row, [0, 0, 2, 3])}
    given = getattr(sparse, f"{kind}_array")(arrays[kind], shape=coo.shape) if kind in arrays else coo
    b = np.random.default_rng(4).standard_normal((3, 2))
    expected = coo.astype(np.float64) @ b
    for wanted in ("float32", "float64"):
        op = spmark.compile(given, width=2, dtype=wanted, device="cpu")
        close(op(b.astype(wanted)), expected, wanted)
    close(spmark.spmm(given, b), expected, "float64")
    assert given.dtype == dtype


def test_duplicates_of_float32_are_added_up_in_the_type_that_is_asked_for() -> None:
    values = np.array([1, 2**-30], np.float32)
    coo = sparse.coo_array((values, ([0, 0], [0, 0])), shape=(1, 1))
    op = spmark.compile(coo, width=1, dtype="float64", device="cpu")
    assert op(np.ones((1, 1))).item() == 1 + 2**-30


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_duplicates_of_a_narrow_tensor_are_added_up_without_overflow(torch: Any) -> None:
    places, ones = torch.tensor([[0, 0], [1, 1]]), np.ones((2, 1), np.float32)
    for values, total in (
        (torch.tensor([127, 127], dtype=torch.int8), 254),
        (torch.tensor([True, True]), 2),
        (torch.tensor([2048, 1], dtype=torch.float16), 2049),
    ):
        given = torch.sparse_coo_tensor(places, values, (2, 2))
        assert spmark.compile(given, width=1, dtype="float32", device="cpu")(ones).tolist() == [[total], [0]]


def test_a_matrix_of_spmark(a: Any, b: np.ndarray, close: Any) -> None:
    csr = Csr.of(a)
    close(spmark.spmm(csr, b), a.astype(np.float64) @ b)
    values = csr.values.copy()
    changed = a.copy()
    op, before = spmark.compile(changed, width=6, use="scipy_cpu", device="cpu"), spmark.spmm(a, b)
    for array in (changed.data, changed.indices, changed.indptr):
        array[:] = 0
    np.testing.assert_array_equal(op(b), before)
    op = spmark.compile(csr, width=6, use="scipy_cpu", device="cpu")
    op.update_values(np.zeros(csr.nnz, np.float32))
    np.testing.assert_array_equal(csr.values, values, "the operator has its own copy")


def test_a_graph_of_pyg_sums_over_incoming_edges(torch: Any) -> None:
    edges, x = np.array([[0, 1, 1, 3, 1], [2, 2, 0, 0, 2]]), np.random.default_rng(5).random((4, 3))
    expected = np.zeros((4, 3))
    np.add.at(expected, edges[1], x[edges[0]])
    for edge_index in (edges, torch.tensor(edges)):
        np.testing.assert_allclose(spmark.spmm((edge_index, 4), x), expected)
        op = spmark.compile((edge_index, np.int64(4)), width=3, device="cpu", budget_s=0)
        assert (op.dtype, op.pattern.nnz) == ("float32", 4), "edges that are there twice are added up"


def test_a_tensor_that_is_kept_with_the_other_sign(a: Any, b: np.ndarray, torch: Any, close: Any) -> None:
    """PyTorch negates some tensors when they are read: imaginary parts of a conjugate are such views, with gaps."""
    plain = torch.tensor(b)
    op, expected = spmark.compile(a, width=6, use="scipy_cpu", device="cpu"), a.astype(np.float64) @ -b
    for negated in (torch.complex(plain, plain).conj().imag, torch._neg_view(plain)):
        close(spmark.spmm(a, negated), expected)
        op(plain)
        close(op(negated), expected)
    values = torch.tensor(a.data)
    for given_ in (values, torch._neg_view(values)):
        op.update_values(given_)
    close(op(plain), expected)


@pytest.mark.parametrize("layout", ["coo", "csr", "csc"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_tensors(layout: str, dtype: str, a: Any, xy: Any, torch: Any, close: Any, sddmm_of: Any) -> None:
    kind = getattr(torch, dtype)
    matrix = torch.tensor(a.toarray()).to(kind)
    rounded = sparse.csr_array(matrix.double().numpy())
    given_ = getattr(matrix, {"coo": "to_sparse_coo"}.get(layout, f"to_sparse_{layout}"))()
    x, y = (torch.tensor(one).to(kind) for one in xy)
    c = spmark.spmm(given_, y)
    assert (type(c), c.dtype, c.device) == (torch.Tensor, kind, y.device)
    close(c, rounded @ y.double().numpy(), dtype)
    d = spmark.sddmm(given_, x, y, scaled=True)
    assert (d.dtype, d.shape) == (kind, (rounded.nnz,))
    close(d, sddmm_of(rounded, x, y, True), dtype)
    out = torch.full_like(c, torch.nan)
    assert spmark.spmm(given_, y, out=out) is out
    assert torch.equal(out, c)


def test_tensors_of_any_strides(a: Any, b: np.ndarray, torch: Any, close: Any) -> None:
    op = spmark.compile(a, width=6, use="scipy_cpu", device="cpu")
    expected = op(b)
    dense = torch.tensor(b)
    row = dense[:1].expand(25, 6)
    np.testing.assert_array_equal(op(row).numpy(), op(np.broadcast_to(b[:1], (25, 6))))
    for view in (dense.T.contiguous().T, torch.cat([dense, dense], 1)[:, :6], dense.clone().requires_grad_().detach()):
        np.testing.assert_array_equal(op(view).numpy(), expected)


def test_a_gradient_is_not_lost_without_a_word(a: Any, b: np.ndarray, torch: Any) -> None:
    op = spmark.compile(a, width=6, use="scipy_cpu", device="cpu")
    dense = torch.tensor(b, requires_grad=True)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"operand B .*: expected a tensor without a gradient, .* pass"):
            op(dense)
        with torch.no_grad():
            np.testing.assert_array_equal(op(dense).numpy(), op(b))
    matrix = torch.tensor(a.toarray()).to_sparse().requires_grad_()
    with pytest.raises(ValueError, match="matrix: expected a tensor without a gradient"):
        spmark.spmm(matrix, torch.tensor(b))


def test_subclasses_of_numpy_s_arrays(a: Any, b: np.ndarray, tmp_path: Path) -> None:
    op = spmark.compile(a, width=6, use="scipy_cpu", device="cpu")
    mapped = np.memmap(tmp_path / "b", np.float32, "w+", shape=b.shape)
    mapped[:] = b
    out = np.memmap(tmp_path / "c", np.float32, "w+", shape=(40, 6))
    with pytest.warns(PendingDeprecationWarning):
        matrix = np.matrix(b)
    for dense in (mapped, matrix):
        for _ in range(2):
            assert type(op(dense)) is np.ndarray
            assert op(dense, out=out) is out
            np.testing.assert_array_equal(out, op(b))
            out[:] = np.nan


def test_arrays_of_other_libraries_come_in_through_dlpack(a: Any, b: np.ndarray) -> None:
    class Foreign:
        dtype, shape = b.dtype, b.shape

        def __dlpack__(self, **how: Any) -> Any:
            return b.__dlpack__(**how)

        def __dlpack_device__(self) -> Any:
            return b.__dlpack_device__()

    op = spmark.compile(a, width=6, use="scipy_cpu", device="cpu")
    for _ in range(2):
        np.testing.assert_array_equal(op(Foreign()), op(b))


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
def test_any_shape_stride_and_pattern(dtype: str, data: Any) -> None:
    sizes = st.integers(1, 9)
    rows, cols, width = data.draw(sizes), data.draw(sizes), data.draw(sizes)
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    dense_a = rng.integers(-4, 5, (rows, cols)) * (rng.random((rows, cols)) < data.draw(st.sampled_from([0, 0.3, 1])))
    matrix = sparse.csr_array(dense_a.astype(np.float32))
    room = rng.integers(-4, 5, (2 * cols, 3 * width)).astype(dtype)
    step_rows, step_cols = data.draw(st.sampled_from([1, 2, -1])), data.draw(st.sampled_from([1, 3, -1]))
    b = room[::step_rows, ::step_cols][:cols, :width]
    b = np.asfortranarray(b) if data.draw(st.booleans()) else b
    op = spmark.compile(matrix, width=data.draw(sizes), dtype=dtype, use="scipy_cpu", device="cpu")
    expected = dense_a @ b.astype(np.float64)  # small integers: exact in every type
    np.testing.assert_array_equal(op(b), expected)
    out = np.full(expected.shape, np.nan, dtype)
    for _ in range(2):
        assert op(b, out=out) is out
        np.testing.assert_array_equal(out, expected)
    x = rng.integers(-4, 5, (rows, width)).astype(dtype)
    d = spmark.compile(matrix, "sddmm", width=width, dtype=dtype, use="scipy_cpu", device="cpu")(x, b)
    at = matrix.tocoo()
    np.testing.assert_array_equal(d, (x[at.row].astype(np.float64) * b[at.col]).sum(axis=1))


@pytest.mark.parametrize("device", ["cpu", "host-simt"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_matrix_without_nonzeros(device: str, dtype: str) -> None:
    empty = sparse.csr_array((5, 4), dtype=dtype)
    op = spmark.compile(empty, width=3, device=device, budget_s=0)
    np.testing.assert_array_equal(op(np.ones((4, 3), dtype)), np.zeros((5, 3)))
    assert "no non-zeros" in op.explain()
    op = spmark.compile(empty, "sddmm", width=3, device=device, budget_s=0)
    assert op(np.ones((5, 3), dtype), np.ones((4, 3), dtype)).shape == (0,)


@pytest.mark.parametrize(("name", "dtype"), [("sparsetir", "float32"), ("rowsplit", "float16"), ("auto", "float64")])
def test_kernels_of_a_gpu_on_the_host(name: str, dtype: str, a: Any, b: np.ndarray, close: Any) -> None:
    matrix = halves(a)
    op = spmark.compile(matrix, width=6, dtype=dtype, use=name, device="host-simt")
    close(op(b.astype(dtype)), matrix.astype(np.float64) @ b.astype(dtype).astype(np.float64), dtype)


def test_importing_the_package_is_cheap_and_names_complete() -> None:
    program = (
        "import sys, spmark\n"
        "heavy = {'numpy', 'scipy', 'numba', 'pandas', 'cupy', 'torch'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert {'compile', 'load', 'load_records', 'sddmm', 'spmm', '__version__'} <= set(dir(spmark))\n"
        "assert callable(spmark.spmm) and callable(spmark.SparseOperator) and 'torch' not in sys.modules\n"
        "from spmark import *\n"
        "assert CompiledOperator is spmark.CompiledOperator\n"
        "try: spmark.no_such_thing\n"
        "except AttributeError as error: assert 'no_such_thing' in str(error)\n"
        "else: raise SystemExit('an unknown name was found')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_product_without_a_search_imports_no_search() -> None:
    program = (
        "import sys, numpy as np, scipy.sparse as sp, spmark\n"
        "a = sp.random(20, 30, 0.2, format='csr', dtype=np.float32, random_state=1)\n"
        "spmark.compile(a, width=8, use='direct', device='host-simt')(np.ones((30, 8), np.float32))\n"
        "print(*(name.removeprefix('spmark.impls.') for name in sys.modules if name.startswith('spmark.impls.')))\n"
    )
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    for_others = ("tuning", "formats", "kernels.plain", "kernels.family", "runtime.compile", "operator.values")
    found = [name for name in child.stdout.split() if name.startswith(for_others)]
    assert not found, f"what searches, other formats and other calls need was imported: {found}"
