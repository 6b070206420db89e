"""A CUDA file that declares its kernel: built, checked, measured and compiled with like a class in a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from outside_code import nothing_loaded
from problems import matrices, random_csr, run_checked
from scipy import sparse

import spmark
from spmark.impls import table
from spmark.impls.core.digest import OutsideSources, implementation_version
from spmark.impls.core.errors import ProblemError, SweepError
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.runtime import kernelfile
from spmark.impls.runtime.device import find
from spmark.impls.table import create, file_of, module_of, name_of

pytestmark = pytest.mark.usefixtures(nothing_loaded.__name__)
EXAMPLE = Path(__file__).parents[2] / "examples/mykernel/spmm_rows.cu"
HOST = find("host-simt")
SDDMM = """
/* spmark
kernel: products
op: sddmm
dtypes: [float32]
parameters: {threads: [64], unroll: [1, 2], early: [true, false]}
grid: [nnz / threads * unroll, "1"]
arguments: [nnz, width, rows, indices, values, X, Y, D]
*/
template <int threads, int unroll, bool early>
__global__ void products(int nnz, int width, const int* rows, const int* indices, /* A[i, k], */ const float* values,
                         const float* X, const float* Y, float* D) {
  for (int u = 0; u < unroll; ++u) {
    const int p = (blockIdx.x * unroll + u) * threads + threadIdx.x;
    if (p >= nnz) continue;
    float sum = 0.0f;
    for (int j = 0; j < width; ++j) {
      sum += X[static_cast<long long>(rows[p]) * width + j] * Y[static_cast<long long>(indices[p]) * width + j];
    }
    D[p] = values[p] * sum;
  }
}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "products.cu"
    path.write_text(SDDMM)
    return path


def both(name: str) -> Iterator[Problem]:
    for dtype in DType:
        yield Problem(Op.SPMM, matrices()[name], 13, dtype)


@pytest.mark.parametrize("threads", [128, 64, 256])
def test_the_example_is_right_with_each_of_its_parameters(threads: int) -> None:
    how = create(name_of(str(EXAMPLE)), {"threads": threads})
    for problem in (*both("hub"), *both("no_nonzeros")):
        plan = how.build(problem, HOST)
        run_checked(plan, problem)
        assert (plan.config, plan.stored) == ({"threads": threads}, problem.matrix.nnz)


def test_a_declared_sddmm_gets_rows_and_ones_where_nothing_is_scaled(file: Path) -> None:
    how = create(name_of(str(file)), {"unroll": 2, "early": False})
    matrix = random_csr(25, 97, [0, 1, 5, 97, 0, 3] * 4 + [2])
    for scaled in (False, True):
        problem = Problem(Op.SDDMM, matrix, 5, DType.FLOAT32, scaled)
        plan = how.build(problem, HOST)
        run_checked(plan, problem)
        assert (plan.values is not None) == scaled, "ones are no values of A"
    file.write_text(SDDMM.replace(" values, X", " X").replace("const float* values,", "").replace("values[p] * ", ""))
    table.LOADED.clear()
    problem = Problem(Op.SDDMM, matrix, 5, DType.FLOAT32, scaled=True)
    assert "expected a kernel with the argument values" in (create(name_of(str(file))).unsupported(problem, HOST) or "")


def test_what_the_table_does_not_declare_is_refused(file: Path) -> None:
    how, matrix = create(name_of(str(file))), matrices()["hub"]
    assert "expected float32, found float16" in (
        how.unsupported(Problem(Op.SDDMM, matrix, 5, DType.FLOAT16), HOST) or ""
    )
    with pytest.raises(SweepError, match="implementation products: expected unroll out of 1, 2, found 3"):
        create("products", {"unroll": 3})
    with pytest.raises(SweepError, match=r"expected values like .*unroll must be an integer"):
        create("products", {"unroll": True})
    with pytest.raises(SweepError, match="products: expected tunables out of threads, unroll, early, found T"):
        create("products", {"T": "float"})


def test_a_grid_beyond_the_device_is_refused(file: Path) -> None:
    file.write_text(SDDMM.replace('"1"', "nnz * 9999"))
    refusal = create(name_of(str(file))).unsupported(Problem(Op.SDDMM, matrices()["hub"], 5), HOST)
    assert "expected a grid of at most (2147483647, 65535, 65535) blocks, found" in (refusal or "")


def test_it_is_compiled_with_by_its_path_and_then_known_by_its_name(tmp_path: Path) -> None:
    a: Any = sparse.random_array((40, 30), density=0.1, format="csr", dtype=np.float32, rng=np.random.default_rng(0))
    b = np.random.default_rng(1).standard_normal((30, 6)).astype(np.float32)
    op = spmark.compile(a, width=6, use=str(EXAMPLE), device="host-simt")
    np.testing.assert_allclose(op(b), a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4)
    assert "J = 6: spmm_rows (threads = 128)" in op.explain()
    assert file_of("spmm_rows") == str(EXAMPLE)
    op.update_values(2 * a.data)
    np.testing.assert_allclose(op(b), 2 * a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4)
    op.save(tmp_path / "op")
    assert "J = 6: spmm_rows" in spmark.load(tmp_path / "op").explain()
    with pytest.raises(ProblemError, match=r"use: .*none\.cu: expected a Python or CUDA file, found none"):
        spmark.compile(a, width=6, use=str(tmp_path / "none.cu"), device="host-simt")


@pytest.mark.parametrize("name", ["rowsplit", "my kernel"])
def test_the_name_of_the_file_is_that_of_the_implementation(file: Path, name: str) -> None:
    other = file.rename(file.with_name(f"{name}.cu"))
    with pytest.raises(SweepError, match=f"expected a name that is free|expected name: a text of letters.*'{name}'"):
        name_of(str(other))


def test_each_legal_config_is_named_once_and_the_default_first(file: Path) -> None:
    file.write_text(SDDMM.replace("  for (int u", '  static_assert(unroll == 1 || early, "");\n  for (int u', 1))
    how: Any = create(name_of(str(file)))
    assert [(one["unroll"], one["early"]) for one in how.configs()] == [(1, True), (1, False), (2, True)]


def test_the_version_follows_the_file(file: Path) -> None:
    def version() -> str:
        table.LOADED.clear()
        return implementation_version(module_of(name_of(str(file))))

    first = version()
    file.write_text(SDDMM + "// a comment\n")
    assert version() == first
    file.write_text(SDDMM.replace('unroll, "1"]', "unroll]"))
    assert version() != first, "the table counts, though it stands in a comment"
    file.write_text(SDDMM.replace("sum = 0.0f", "sum = 0"))
    assert version() != first
    assert OutsideSources(file).version() != OutsideSources(file, kernelfile.__name__).version(), "what builds counts"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("/* spmark", "/* mine", r"expected a comment with the kernel's table, found none: write /\* spmark, then"),
        ("kernel: products\n", "kernel: [products\n", r":2: expected YAML, found .*ParserError"),
        ("op: sddmm\n", "", "op: expected this key, found none; mend the table"),
        ("op: sddmm", "op: spmv", ":4: op: expected 'spmm' or 'sddmm', found 'spmv'; mend the table"),
        ("op: sddmm", "op: sddmm\ngird: []", r"expected a key out of kernel, .*, found 'gird' \(did you mean grid\?\)"),
        ("dtypes: [float32]", "dtypes: []", r"dtypes: .*at least 1 item.*, found \[\]; mend the table"),
        ("dtypes: [float32]", "dtypes: [float32, float16]", "parameters: expected one that is dtype, for several"),
        ("threads: [64]", "threads: [2048]", r"expected threads: \[256\], or others of 1 to 1024, found \(2048,\)"),
        ("{threads: [64], ", "{", r"expected threads: .*, found \(\); mend"),
        ("unroll: [1, 2]", "unroll: []", r"parameters\.unroll: expected dtype, or integers, .*, found \[\]"),
        ("unroll: [1, 2]", "unroll: float", r"parameters\.unroll: expected dtype, or integers, .*, found 'float'"),
        ("unroll: [1, 2]", "width: [1, 2]", "parameters: expected names of your own, found width"),
        ("unroll: [1, 2]", "build: [1, 2]", "parameters: expected names of your own, found build"),
        ("unroll: [1, 2]", "class: [1, 2]", "parameters: expected names of your own, found class"),
        ("unroll: [1, 2]", '"a;b": [1, 2]', r"parameters\.a;b\.\[key\]: expected letters, digits and _, found 'a;b'"),
        ("nnz / threads", "nzn / threads", r"grid: expected a number or a name out of num_rows, .*, found 'nzn' \(did"),
        ("nnz / threads", "nnz / 0", r"grid\.0: expected a product and what divides it, such as"),
        ("nnz / threads", "f(1)", r"grid\.0: expected a product and what .*, found 'f\(1\) \* unroll'"),
        ('"1"', '"1", "1", "1"', r"grid: .*at most 3 items"),
        ("indices, values", "indexes, values", r"arguments: expected an argument out of .*, found 'indexes' \(did you"),
        ("X, Y, D]", "X, Y, C]", "arguments: expected an argument out of .*, found 'C'"),
        ("X, Y, D]", "X, Y]", ":8: arguments: expected X, Y, D for sddmm, found no D"),
        ("values, X, Y, D]", "X, Y, D]", "arguments: expected 8, as products takes them, found 7: mend the table or"),
        ("[nnz, width, rows", "[nnz, rows, width", "expected a pointer of products for rows, found 'int width'"),
        ("rows, indices,", "rows, num_cols,", r"expected an int of products for num_cols, found 'const int\* indices'"),
        ("kernel: products", "kernel: product", r"kernel: expected product\(\.\.\.\) in the file, found none"),
        ("template <int threads, int unroll, bool early>\n", "", ":3: kernel: expected a template, such as"),
        ("const float* X", "const double* X", ":8: arguments: expected a pointer .* with elements of 32"),
        ("int nnz,", "int64_t nnz,", "expected an int of products for nnz, found 'int64_t nnz'"),
        ("kernel: products", "kernel: 5", "kernel: expected a valid string, found 5; mend the table"),
        (SDDMM, "/* spmark\n*/", "expected the kernel's table, found None: write"),
        (SDDMM, "/* spmark\n- a\n*/", r"expected the kernel's table, found \['a'\]: write"),
    ],
)  # fmt: skip
def test_a_wrong_table_says_where_and_what_to_do(file: Path, old: str, new: str, message: str) -> None:
    assert old in SDDMM
    file.write_text(SDDMM.replace(old, new, 1))
    with pytest.raises(SweepError, match=message) as refused:
        name_of(str(file))
    assert str(refused.value).startswith(str(file)), "says where"
    assert not table.LOADED
    file.write_text(SDDMM)
    assert name_of(str(file)) == "products", "a mended file is read again"


def test_a_file_of_bytes_is_refused(file: Path) -> None:
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(
        SweepError, match=r"products\.cu: expected a CUDA file, found something else \(UnicodeDecodeErr"
    ):
        name_of(str(file))
