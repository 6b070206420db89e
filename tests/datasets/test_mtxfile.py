"""Matrix Market files as tools write them: sizes, comments, packings, fields and symmetries; and claims of size."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
import tarfile

import numpy as np
import pytest
from archives import tarred, zipped
from scipy import io as scipy_io
from scipy import sparse

from spmark.datasets.readers.matrix_market import read_mtx
from spmark.impls.core.errors import DatasetError, MatrixError
from spmark.records.schema import MatrixKind

PACKINGS = {
    "m.mtx": bytes,
    "m.mtx.gz": gzip.compress,
    "m.tar": lambda content: tarred({"m/m.mtx": content}, "w"),
    "m.tar.gz": lambda content: tarred({"m/m.mtx": content}),
    "m.tgz": lambda content: tarred({"m/m.mtx": content}),
    "m.zip": lambda content: zipped({"m/m.mtx": content}),
    "M.MTX.GZ": gzip.compress,
    "M.ZIP": lambda content: zipped({"M.MTX": content}),
}


def drawn(nnz: int, rows: int, cols: int) -> sparse.coo_array:
    rng = np.random.default_rng(nnz)
    at = rng.choice(rows * cols, nnz, replace=False)
    return sparse.coo_array((rng.standard_normal(nnz), np.divmod(at, cols)), shape=(rows, cols))


def by_hand(matrix: sparse.coo_array, comment: str) -> bytes:
    """Write the way that other tools do: any spacing, Windows line ends, empty lines, no last line end."""
    lines = ["%%matrixmarket MATRIX Coordinate real GENERAL", *comment.splitlines(), ""]
    lines += [f"  {matrix.shape[0]}\t{matrix.shape[1]}   {matrix.nnz} "]
    lines += [f" {r + 1}  {c + 1}\t{v!r}" for r, c, v in zip(matrix.row, matrix.col, matrix.data.tolist(), strict=True)]
    return "\r\n".join(lines).encode("latin1")


def by_scipy(matrix: sparse.coo_array, comment: str) -> bytes:
    out = io.BytesIO()
    scipy_io.mmwrite(out, matrix, comment=comment.replace("%", ""), precision=17)
    return out.getvalue()


def same(path, matrix: sparse.coo_array) -> None:
    read, expected = read_mtx(path), matrix.tocsr()
    expected.sort_indices()
    assert read.shape == matrix.shape
    assert np.array_equal(read.indptr, expected.indptr)
    assert np.array_equal(read.indices, expected.indices)
    assert np.array_equal(read.values, expected.data)
    assert read.kind is MatrixKind.REAL


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", PACKINGS)
@pytest.mark.parametrize("write", [by_scipy, by_hand])
def test_sizes_comments_and_packings(tmp_path, write, name):
    comments = ["", "% one line\n", "% " + "long " * 60 + "\n" + "%\n" * 50]
    if write is by_hand:
        comments.append("% J\xf6rg\n")  # SciPy writes ASCII
    for nnz in (1, 2, 3, 5, 8, 10, 20, 100, 1000, 10_000):
        matrix = drawn(nnz, 200, 300)
        for comment in comments:
            (tmp_path / name).write_bytes(PACKINGS[name](write(matrix, comment)))
            same(tmp_path / name, matrix)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", PACKINGS)
def test_five_megabytes(tmp_path, name):
    matrix = drawn(180_000, 3000, 2000)
    content = by_scipy(matrix, "")
    assert len(content) > 5e6
    (tmp_path / name).write_bytes(PACKINGS[name](content))
    same(tmp_path / name, matrix)


def test_every_size_up_to_a_kilobyte(tmp_path):
    """Some 200 bytes are where a reader that seeks began to fail."""
    sizes = set()
    for nnz in range(1, 40):
        for length in range(0, 40, 7):
            matrix = drawn(nnz, 50, 60)
            content = by_scipy(matrix, "x" * length)
            sizes.add(len(content))
            (tmp_path / "m.mtx").write_bytes(content)
            same(tmp_path / "m.mtx", matrix)
    assert min(sizes) < 110 and max(sizes) > 1000 and len(sizes) > 150


def test_a_user_reads_what_scipy_wrote(tmp_path):
    """In a process of its own, which a native reader would end; by a relative path, as users give it."""
    scipy_io.mmwrite(tmp_path / "mine.mtx", drawn(500, 90, 80))
    code = (
        "from pathlib import Path\n"
        "from spmark.datasets.readers.matrix_market import read_mtx\n"
        "print(read_mtx(Path('mine.mtx')).facts.nnz)"
    )
    out = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (out.returncode, out.stdout.strip()) == (0, "500"), out.stderr


@pytest.mark.parametrize("symmetry", ["symmetric", "skew-symmetric", "hermitian", "general"])
@pytest.mark.parametrize("field", ["real", "integer", "unsigned-integer", "pattern", "double"])
def test_fields_and_symmetries_as_scipy_reads_them(tmp_path, field, symmetry):
    values = {"real": ["2.5", "-1e-3", "0.0"], "double": ["1.5", "2", "3e2"], "pattern": ["", "", ""]}
    first, second, third = values.get(field, ["4", "7", "0"])
    diagonal = f"3 3 {third}\n" if symmetry != "skew-symmetric" else f"4 3 {third}\n"
    content = f"%%MatrixMarket matrix coordinate {field} {symmetry}\n% c\n4 4 3\n2 1 {first}\n4 1 {second}\n{diagonal}"
    path = tmp_path / "m.mtx"
    path.write_text(content)
    read = read_mtx(path)
    expected = {(1, 0): float(first or 1), (3, 0): float(second or 1)}
    expected[(2, 2) if symmetry != "skew-symmetric" else (3, 2)] = float(third or 1)
    if symmetry != "general":
        sign = -1 if symmetry == "skew-symmetric" else 1
        expected |= {(c, r): sign * v for (r, c), v in expected.items() if r != c}
    rows = np.repeat(np.arange(4), np.diff(read.indptr))
    values_read = np.ones(rows.size) if read.values is None else read.values
    if field == "pattern":
        expected = dict.fromkeys(expected, 1.0)
    entries = dict(zip(zip(rows.tolist(), read.indices.tolist(), strict=True), values_read.tolist(), strict=True))
    assert entries == expected
    assert (read.values is None) is (field == "pattern")


def test_values_are_those_that_scipy_reads(tmp_path):
    rng = np.random.default_rng(0)
    numbers = rng.standard_normal(2000) * 10.0 ** rng.integers(-300, 300, 2000)
    lines = [
        f"{at + 1} 1 {number:.{digits}e}"
        for at, (number, digits) in enumerate(zip(numbers, [0, 3, 16, 25] * 500, strict=True))
    ]
    path = tmp_path / "m.mtx"
    path.write_text("%%MatrixMarket matrix coordinate real general\n2000 1 2000\n" + "\n".join(lines) + "\n")
    assert np.array_equal(read_mtx(path).values, [float(line.split()[2]) for line in lines])


@pytest.mark.parametrize(
    ("field", "value"), [("integer", 2**62), ("integer", -(2**62) - 1), ("unsigned-integer", 2**63)]
)
def test_sums_of_entries_do_not_wrap_around(tmp_path, field, value):
    path = tmp_path / "m.mtx"
    path.write_text(f"%%MatrixMarket matrix coordinate {field} general\n1 1 2\n1 1 {value}\n1 1 {value}\n")
    assert read_mtx(path, merge=True).values.tolist() == [float(2 * value)]


def test_no_entries(tmp_path):
    path = tmp_path / "m.mtx"
    path.write_text("%%MatrixMarket matrix coordinate real general\n3 4 0\n")
    assert read_mtx(path).facts.nnz == 0


@pytest.mark.parametrize("size", ["2147483647 2 1", "2 2147483647 1", "600000000 1 1"])
def test_rows_and_columns_that_only_the_header_has(tmp_path, monkeypatch, size):
    path = tmp_path / "m.mtx"
    path.write_text(f"%%MatrixMarket matrix coordinate pattern general\n{size}\n1 1\n")
    with pytest.raises(DatasetError, match=r"m\.mtx: expected .* at most 8 GiB, .*; .*set SPMARK_MAX_MATRIX_GIB"):
        read_mtx(path)
    path.write_text("%%MatrixMarket matrix coordinate pattern general\n200000 2 1\n1 1\n")
    assert read_mtx(path).shape == (200_000, 2)
    monkeypatch.setenv("SPMARK_MAX_MATRIX_GIB", "0.001")
    with pytest.raises(DatasetError, match=r"200,000 rows and 2 columns to take at most 0\.001 GiB"):
        read_mtx(path)
    monkeypatch.setenv("SPMARK_MAX_MATRIX_GIB", "much")
    with pytest.raises(DatasetError, match="expected a positive number of GiB, found 'much'"):
        read_mtx(path)


def test_sizes_beyond_int32(tmp_path):
    path = tmp_path / "m.mtx"
    path.write_text("%%MatrixMarket matrix coordinate pattern general\n2147483648 2 1\n1 1\n")
    with pytest.raises(MatrixError, match=r"at most 2\^31 - 1"):
        read_mtx(path)


@pytest.mark.parametrize("name", ["m.mtx.gz", "m.tar.gz", "m.zip"])
def test_what_comes_out_of_an_archive_has_a_ceiling(tmp_path, monkeypatch, name):
    content = b"%%MatrixMarket matrix coordinate pattern general\n%" + b" " * 5_000_000 + b"\n1 1 1\n1 1\n"
    packed = PACKINGS[name](content)
    assert len(packed) < 20_000
    (tmp_path / name).write_bytes(packed)
    monkeypatch.setenv("SPMARK_MAX_MATRIX_GIB", "0.002")
    with pytest.raises(DatasetError, match=r"at most 2,147,483 bytes in its .* by SPMARK_MAX_MATRIX_GIB"):
        read_mtx(tmp_path / name)


@pytest.mark.parametrize("name", ["m.mtx.gz", "m.tar.gz", "m.zip"])
def test_comments_without_end_are_not_unpacked(tmp_path, name):
    content = b"%%MatrixMarket matrix coordinate pattern general\n" + (b"%" * 99 + b"\n") * 180_000 + b"1 1 1\n1 1\n"
    (tmp_path / name).write_bytes(PACKINGS[name](content))
    with pytest.raises(DatasetError, match=r"at most 16,777,216 bytes in its .*unpack it and name the file"):
        read_mtx(tmp_path / name)


def test_a_sparse_member_of_a_tar_is_not_unpacked(tmp_path):
    """It claims zeros that the archive does not hold."""
    info = tarfile.TarInfo("m/m.mtx")
    info.size, info.type = 512, tarfile.GNUTYPE_SPARSE
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[386:398], header[398:410] = b"%011o\0" % 0, b"%011o\0" % 512
    header[483:495] = b"%011o\0" % (1 << 40)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    (tmp_path / "m.tar").write_bytes(bytes(header[:512]) + b" " * 512 + b"\0" * 10_240)
    with pytest.raises(DatasetError, match=r"expected one m\.mtx, found none"):
        read_mtx(tmp_path / "m.tar")


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_tar_header_that_claims_more_than_the_file_has(tmp_path, kind):
    info = tarfile.TarInfo("m")
    info.size, info.type = 1 << 31, kind
    (tmp_path / "m.tar").write_bytes(info.tobuf(tarfile.GNU_FORMAT) + b"x" * 10_240)
    with pytest.raises(DatasetError, match="expected a complete archive, found something else"):
        read_mtx(tmp_path / "m.tar")


def test_nothing_stays_in_the_folder_for_temporary_files(tmp_path, monkeypatch):
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    for name, pack in PACKINGS.items():
        for content in (by_scipy(drawn(50, 20, 20), ""), b"no matrix"):
            (tmp_path / name).write_bytes(pack(content))
            try:
                read_mtx(tmp_path / name)
            except DatasetError:
                assert content == b"no matrix"
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    ("symmetry", "sizes", "entry", "message"),
    [
        ("symmetric", "4 5 1", "2 1 1.5", "m.mtx:2: expected a square matrix, being symmetric, found 4 x 5"),
        ("hermitian", "5 4 1", "2 1 1.5", "expected a square matrix, being hermitian, found 5 x 4"),
        ("skew-symmetric", "4 4 1", "3 3 1.5", "expected no diagonal in a skew-symmetric matrix, found row and .* 3"),
    ],
)
def test_a_symmetry_that_cannot_be_is_refused(tmp_path, symmetry, sizes, entry, message):
    path = tmp_path / "m.mtx"
    path.write_text(f"%%MatrixMarket matrix coordinate real {symmetry}\n{sizes}\n{entry}\n")
    with pytest.raises(MatrixError, match=message):
        read_mtx(path)


def test_a_zero_on_the_diagonal_of_a_skew_symmetric_matrix_stays(tmp_path):
    path = tmp_path / "m.mtx"
    path.write_text("%%MatrixMarket matrix coordinate real skew-symmetric\n3 3 2\n2 2 0\n3 1 1.5\n")
    assert read_mtx(path).facts.nnz == 3
