"""Operators in files: they come back without a search, and what is damaged, foreign or of other code is refused."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from outside_code import nothing_loaded

import spmark
from spmark.impls.core.errors import BuildError, DeviceError, MatrixError, UnsupportedError
from spmark.impls.operator import choose, saved
from spmark.impls.table import LOADED


@pytest.fixture
def path(a: Any, tmp_path: Path) -> Path:
    op = spmark.compile(a, width=[6, 2], use=["scipy_cpu"], device="cpu", other_width="raise")
    op.save(tmp_path / "mine.op")
    return tmp_path / "mine.op"


def parts_of(path: Path) -> dict[str, np.ndarray]:
    """Read what stands behind the digest."""
    with np.load(io.BytesIO(path.read_bytes().split(b"\n", 2)[2])) as file:
        return dict(file)


def facts_of(path: Path) -> Any:
    return json.loads(parts_of(path)["facts"].tobytes())


def rewritten(path: Path, **parts: Any) -> Path:
    """Write a file with other parts, and a digest that fits."""
    content = io.BytesIO()
    np.savez(content, **{**parts_of(path), **parts})
    path.write_bytes(saved.sealed(content.getvalue()))
    return path


def changed(path: Path, **facts: Any) -> Path:
    """Write a file with other facts, some of what was asked or of the device, and a digest that fits."""
    known = facts_of(path)
    for name, fact in facts.items():
        asked = known["asked"]
        place = asked["device"] if name in asked["device"] else asked if name in asked else known
        place[name] = fact
    return rewritten(path, facts=np.frombuffer(json.dumps(known).encode(), np.uint8))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("op_name", ["spmm", "sddmm"])
def test_an_operator_comes_back(op_name: Any, dtype: str, a: Any, xy: Any, tmp_path: Path) -> None:
    scaled = op_name == "sddmm"
    op = spmark.compile(a, op_name, width=6, dtype=dtype, use="scipy_cpu", scaled=scaled, device="cpu")
    operands = [one.astype(dtype) for one in (xy if scaled else xy[1:])]
    op.save(str(tmp_path / "first"))
    (tmp_path / "first").rename(tmp_path / "another name")
    again = spmark.load(str(tmp_path / "another name"))
    np.testing.assert_array_equal(again(*operands), op(*operands))
    assert repr(again) == repr(op)
    assert again.explain().splitlines()[1] == op.explain().splitlines()[1]


def test_bfloat16_comes_back(a: Any, b: np.ndarray, torch: Any, tmp_path: Path) -> None:
    op = spmark.compile(torch.tensor(a.toarray()).bfloat16().to_sparse(), width=6, device="cpu")
    op.save(tmp_path / "op")
    dense = torch.tensor(b).bfloat16()
    assert torch.equal(spmark.load(tmp_path / "op")(dense), op(dense))


def test_what_was_asked_comes_back(path: Path, b: np.ndarray) -> None:
    op = spmark.load(path)
    assert op.widths == (6, 2)
    with pytest.raises(ValueError, match="expected J out of the widths that were compiled, 6, 2, found 3"):
        op(np.ascontiguousarray(b[:, :3]))


def test_new_values_are_saved(a: Any, b: np.ndarray, tmp_path: Path) -> None:
    op = spmark.compile(a, width=6, use="scipy_cpu", device="cpu")
    op.update_values(2 * a.data)
    op.save(tmp_path / "op")
    np.testing.assert_array_equal(spmark.load(tmp_path / "op")(b), op(b))


def test_results_of_searches_travel_along(a: Any, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    build = choose.build
    monkeypatch.setattr(saved, "build", lambda *args: told.append(args[3]) or build(*args))
    held = {"sparsetir/name.json": '{"config": {}}'}
    first = {**facts_of(path)["plans"][0], "held": held}
    spmark.load(changed(path, plans=[first]))
    assert told == [{"sparsetir/name.json": b'{"config": {}}'}]


def test_pinned_tunables_that_nobody_knows_are_refused(path: Path) -> None:
    first = {
        **facts_of(path)["plans"][0],
        "choice": {"name": "scipy_cpu", "config": {"colour": "red"}},
    }
    with pytest.raises(BuildError, match=r"the saved plan of J = 6: .* found colour: compile the operator and save it"):
        spmark.load(changed(path, plans=[first]))


@pytest.mark.parametrize("at", [0, 3, 40, 60, 200, 900, -30, -1])
def test_every_byte_counts(at: int, path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    with pytest.raises(BuildError, match=r"mine.op: expected "):
        spmark.load(path)


@pytest.mark.parametrize("length", [0, 10, 36, 100, 1000])
def test_a_file_that_ends_early_is_refused(length: int, path: Path) -> None:
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(BuildError, match=r"mine.op: expected .* found a (damaged file|file of something else)"):
        spmark.load(path)


def test_missing_and_foreign_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="none: expected a compiled operator, found no such file"):
        spmark.load(tmp_path / "none")
    np.savez(tmp_path / "a.npz", np.ones(3))
    with pytest.raises(BuildError, match=r"a.npz: expected a compiled operator, found a file of something else"):
        spmark.load(tmp_path / "a.npz")
    with pytest.raises(BuildError, match="expected a compiled operator, found an unreadable file"):
        spmark.load(tmp_path)


@pytest.mark.parametrize("given", [None, 3, "a\0b"])
def test_what_is_no_path_is_refused(given: Any, a: Any) -> None:
    with pytest.raises(
        BuildError, match=rf"expected the path of a compiled operator's file, found {re.escape(repr(given))}"
    ):
        spmark.load(given)
    with pytest.raises(BuildError, match="expected the path of a compiled operator's file, found "):
        spmark.compile(a, width=6, use="scipy_cpu", device="cpu").save(given)


def test_another_format_is_named(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"format 3\n", b"format 1\n", 1))
    with pytest.raises(BuildError, match="expected format 3, found format '1': compile the operator and save it"):
        spmark.load(path)


def test_other_code_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved, "implementation_version", lambda name: "another")
    with pytest.raises(BuildError, match=r"expected the plan of scipy_cpu to be of this code, .* found one of"):
        spmark.load(path)


@pytest.mark.parametrize(
    ("facts", "error", "message"),
    [
        ({"name": "another-cpu"}, DeviceError, r"expected the device another-cpu .*, found "),
        ({"arch": "sparc"}, DeviceError, r"expected the device .* \(sparc\), found "),
        ({"kind": "tpu"}, BuildError, "expected a compiled operator, found something else"),
        ({"dtype": "float64"}, BuildError, "expected values of float64, found float32"),
        ({"shape": [2**31, 1]}, BuildError, "expected a compiled operator, found something else"),
        ({"pattern": "0" * 64}, BuildError, "expected the pattern 0000000000000000, found "),
        ({"plans": [{"width": 0, "choice": {"name": "x"}, "version": ""}]}, BuildError, "expected a compiled operator"),
        (
            {"plans": [{"width": 6, "choice": {"name": "x"}, "version": ""}]},
            BuildError,
            "expected implementations that this process knows, found x: ",
        ),
        ({"names": []}, BuildError, "expected a compiled operator, found something else"),
        ({"more": 1}, BuildError, "expected a compiled operator, found something else"),
        ({"asked": {}}, BuildError, "expected a compiled operator, found something else"),
    ],
)
def test_facts_that_do_not_fit_are_refused(facts: Any, error: Any, message: str, path: Path) -> None:
    with pytest.raises(error, match=message):
        spmark.load(changed(path, **facts))


def test_a_matrix_is_checked_even_behind_a_digest_that_fits(path: Path) -> None:
    content, (indptr, values) = path.read_bytes(), (parts_of(path)[name] for name in ("indptr", "values"))
    for part, error, message in (
        ({"indptr": -indptr}, MatrixError, "expected indptr from 0 to nnz"),
        ({"values": values[1:]}, MatrixError, "expected values of shape"),
        ({"values": values.astype(object)}, BuildError, "expected a compiled operator, found something else"),
    ):
        path.write_bytes(content)
        with pytest.raises(error, match=message):
            spmark.load(rewritten(path, **part))


def test_a_file_that_cannot_be_written_is_an_error(a: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    op = spmark.compile(a, width=6, use="scipy_cpu", device="cpu")
    with pytest.raises(BuildError, match=r"the file cannot be written: .*; name another place"):
        op.save(tmp_path / "file" / "op")
    op.save(tmp_path / "new" / "folder" / "op")
    assert [one.name for one in tmp_path.glob("new/folder/*")] == ["op"], "no partial file stays"


def test_an_implementation_for_another_device_plans_no_width(path: Path) -> None:
    op = spmark.load(changed(path, names=["direct"], other_width="plan"))
    with pytest.raises(UnsupportedError, match="direct: expected spmm on cpu"):
        op.plan(3)


@pytest.mark.usefixtures(nothing_loaded.__name__)
def test_a_file_imports_no_code_and_names_what_is_missing(path: Path, a: Any, tmp_path: Path) -> None:
    own = f"{Path(__file__).parents[2]}/examples/mykernel/mykernel.py:MyKernel"
    trap = tmp_path / "trap.py"
    trap.write_text("raise SystemExit('imported')")
    for name in (own, f"{trap}:MyKernel"):
        with pytest.raises(BuildError, match="expected implementations that this process knows, found"):
            spmark.load(changed(path, names=[name])).plan(3)
    for name in (own, f"{trap}:MyKernel"):
        with pytest.raises(BuildError, match="expected implementations that this process knows, found"):
            spmark.load(changed(path, plans=[{"width": 6, "choice": {"name": name}, "version": ""}]))
    spmark.compile(a, width=6, use=own, device="cpu").save(tmp_path / "own.op")
    assert "J = 6: mykernel" in spmark.load(tmp_path / "own.op").explain(), "compile has imported the file"
    LOADED.clear()
    with pytest.raises(BuildError, match=r"found mykernel: .* compile an operator with that file first"):
        spmark.load(tmp_path / "own.op")


@pytest.mark.usefixtures(nothing_loaded.__name__)
def test_a_rival_that_nobody_knows_is_needed_for_another_width_alone(a: Any, b: np.ndarray, tmp_path: Path) -> None:
    own = f"{Path(__file__).parents[2]}/examples/mykernel/mykernel.py:MyKernel"
    op = spmark.compile(a, width=6, use=["scipy_cpu", own], device="cpu", budget_s=0)  # the first is taken
    right = op(b)
    op.save(tmp_path / "op")
    LOADED.clear()
    op = spmark.load(tmp_path / "op")
    np.testing.assert_array_equal(op(b), right)
    for ask in (lambda: op.plan(3), lambda: op(np.ascontiguousarray(b[:, :3]))):
        with pytest.raises(BuildError, match=r"that this process knows, found mykernel: .* with that file first"):
            ask()
    op.save(tmp_path / "again")
    spmark.compile(a, width=6, use=own, device="cpu")
    op = spmark.load(tmp_path / "again")
    op.plan(3)
    assert op.widths == (6, 3)


@pytest.mark.usefixtures(nothing_loaded.__name__)
def test_a_type_that_nobody_competes_for_needs_no_rivals(a: Any, b: np.ndarray, tmp_path: Path) -> None:
    own = f"{Path(__file__).parents[2]}/examples/mykernel/mykernel.py:MyKernel"
    spmark.compile(a, width=6, use=own, dtype="float64", device="cpu").save(tmp_path / "op")
    LOADED.clear()
    op = spmark.load(tmp_path / "op")
    op.plan(3)
    np.testing.assert_allclose(op(b.astype(np.float64)), a.astype(np.float64) @ b.astype(np.float64))
