"""Implementations of other people: in files that a person names, and in distributions that register them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from outside_code import MINE, nothing_loaded, write_distribution
from scipy import sparse

import spmark
from spmark.datasets.cache import Cache
from spmark.datasets.sources.table import SOURCES, find_source, source_names
from spmark.datasets.sweep.model import MatrixSpec
from spmark.impls import table
from spmark.impls.core.digest import implementation_version
from spmark.impls.core.errors import DatasetError, SweepError
from spmark.impls.core.outside import offers
from spmark.impls.table import IMPLEMENTATIONS, cost_models, create, file_of, implementation_names, module_of, name_of

pytestmark = pytest.mark.usefixtures(nothing_loaded.__name__)
SOURCE = '''
from spmark.datasets.sources.patterns import Patterns


class Mine(Patterns):
    """The patterns under another name."""

    name = "mine"
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


def test_a_class_in_a_file_is_found_by_its_file_and_then_by_its_name(file: Path) -> None:
    for name in ("mine", f"{file}:Mine"):  # such as a record may hold
        with pytest.raises(SweepError, match=f"found '{name}'"):
            create(name)
    made = create(name_of(f"{file}:Mine"), {"chunk_bytes": 64})
    assert (made.name, made.chunk_bytes) == ("mine", 64)
    assert create("mine", {"chunk_bytes": 64}) == made
    assert implementation_names() == [*IMPLEMENTATIONS, "mine"]
    assert name_of("./mine.py:Mine", file.parent) == "mine"
    assert file_of("mine") == f"{file}:Mine"
    assert file_of("scipy_cpu") is None
    assert not cost_models("mine")
    with pytest.raises(SweepError, match="implementation mine: expected tunables out of chunk_bytes, found tile"):
        create("mine", {"tile": 1})


def test_the_version_follows_the_file_and_what_is_beside_it(file: Path) -> None:
    def version() -> str:
        table.LOADED.clear()
        sys.modules.pop(table.private_name(file), None)
        return implementation_version(module_of(name_of(f"{file}:Mine")))

    first = version()
    assert first == implementation_version(module_of("mine")) != implementation_version(module_of("scipy_cpu"))
    file.write_text(MINE + "# a comment\n")
    assert version() == first
    (file.parent / "other.py").write_text("ONE = 1")
    (file.parent / "notes.txt").write_text("none")
    assert version() == first
    (file.parent / "mine.cu").write_text("int one;")
    with_kernel = version()
    assert with_kernel != first
    file.write_text(MINE + "ONE = 1\n")
    assert version() not in (first, with_kernel)


def test_a_package_imports_what_is_beside_and_all_of_it_counts(tmp_path: Path) -> None:
    folder = tmp_path / "kit"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "helper.py").write_text("NAME = 'mine'")
    (folder / "plan.py").write_text(MINE.replace('"mine"', "NAME").replace("import Scipy", "import Scipy", 1)
                                    .replace("from typing", "from .helper import NAME\nfrom typing"))  # fmt: skip
    assert name_of(f"{folder}/plan.py:Mine") == "mine"
    before = implementation_version(module_of("mine"))
    (folder / "helper.py").write_text("NAME = 'mine'; ONE = 1")
    assert implementation_version(module_of("mine")) != before
    assert "helper" not in sys.modules


def test_a_fault_beside_the_file_is_named_there(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text("")
    (tmp_path / "helper.py").write_text("import math\nmath.none\n")
    (tmp_path / "mine.py").write_text("from . import helper\n" + MINE)
    with pytest.raises(
        SweepError, match=rf"{tmp_path}/helper\.py:2: .*module 'math' has no attribute 'none'; mend the"
    ):
        name_of(f"{tmp_path}/mine.py:Mine")
    (tmp_path / "helper.py").write_text("x = (")
    with pytest.raises(
        SweepError, match=rf"{tmp_path}/helper\.py:1: .*SyntaxError: '\(' was never closed; mend the file"
    ):
        name_of(f"{tmp_path}/mine.py:Mine")
    (tmp_path / "helper.py").write_text("")
    assert name_of(f"{tmp_path}/mine.py:Mine") == "mine"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import math\nx = = 1\n", r"mine\.py:2: expected a file that Python imports, found SyntaxError: .*; mend the"),
        ("x = 1\nx.y\n", r"mine\.py:2: .*found AttributeError: 'int' object has no attribute 'y'; mend the file"),
        ("import helper_beside", r"mine\.py:1: .*found ModuleNotFoundError: .*install helper_beside; or, .*__init__"),
        ("raise SystemExit(3)", r"mine\.py:1: .*found SystemExit: 3"),
        ("class Mint: pass", r"mine\.py: expected a class out of Mint, found 'Mine' \(did you mean Mint\?\)"),
        ("from pathlib import Path as Mine", r"mine\.py: expected the class Mine, found a file without classes"),
        ("class Mine: pass", r"expected an implementation: expected @dataclass\(frozen=True\), .*; expected name: a "),
        (MINE.replace('"mine"', "'a/b'"), r"expected name: a text of letters.*, found 'a/b'$"),
        (MINE + "    ops = set()\n", r"an implementation: expected ops: a frozenset of members of Op, found set\(\)$"),
        (MINE + "    devices = frozenset({'gpu'})\n", r"expected devices: a frozenset of members of DeviceKind"),
        (MINE + "    build = None\n", r"an implementation: expected build\(problem, device\), found None$"),
    ],
)
def test_a_file_that_cannot_be_used_says_where_and_what_to_do(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(SweepError, match=message):
        create(name_of(f"{file}:Mine"))
    assert not table.LOADED
    file.write_text(MINE)
    assert create(name_of(f"{file}:Mine")).name == "mine", "a mended file is read again"


@pytest.mark.parametrize("taken", ["rowsplit", "runtime"])
def test_a_name_of_spmark_is_refused(file: Path, taken: str) -> None:
    file.write_text(MINE.replace('"mine"', f'"{taken}"'))
    with pytest.raises(SweepError, match=rf"found '{taken}', a name of spmark, too: give the class of the file {file}"):
        create(name_of(f"{file}:Mine"))


def test_two_files_with_one_name_are_both_named(file: Path) -> None:
    other = file.with_name("other.py")
    other.write_text(MINE)
    create(name_of(f"{file}:Mine"))
    with pytest.raises(
        SweepError, match=rf"{other}:Mine: .*, a name of the file {file}, too: .*the file {other} anoth"
    ):
        create(name_of(f"{other}:Mine"))
    assert file_of("mine") == f"{file}:Mine"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site"
    groups = {"spmark.implementations": "mine = demo_kernels:Mine", "spmark.sources": "mine = demo_source:Mine"}
    write_distribution(folder, "demo", groups, demo_kernels=MINE, demo_source=SOURCE)
    monkeypatch.syspath_prepend(str(folder))
    return folder


def test_what_a_distribution_registers_is_imported_when_it_is_named(installed: Path) -> None:
    assert "mine" in implementation_names()
    assert "mine" in source_names()
    create("scipy_cpu")
    assert not {"demo_kernels", "demo_source"} & set(sys.modules)
    assert create("mine").name == "mine"
    assert "demo_source" not in sys.modules
    assert find_source("mine").name == "mine"
    assert MatrixSpec(source="mine", name="logsparse_64").id == "mine/logsparse_64"
    assert find_source("mine").load("logsparse_64", {}, Cache.default()).facts.num_rows == 64
    b = np.ones((3, 4), np.float32)
    op = spmark.compile(sparse.eye_array(3, format="csr", dtype=np.float32), width=4, use="mine", device="cpu")
    np.testing.assert_array_equal(op(b), b)
    before = implementation_version(module_of("mine"))
    (installed / "demo_kernels.py").write_text(MINE + "ONE = 1\n")
    assert implementation_version(module_of("mine")) != before


def test_a_name_with_two_owners_is_refused_with_both(installed: Path, file: Path) -> None:
    with pytest.raises(SweepError, match=rf"a name of demo 1\.0, too: give the class of the file {file} another name"):
        create(name_of(f"{file}:Mine"))
    groups = {"spmark.implementations": "mine = demo_b:B\ngespmm = demo_b:B", "spmark.sources": "ogb = demo_b:B"}
    write_distribution(installed, "rival", groups)
    offers.cache_clear()
    with pytest.raises(
        SweepError, match=r"one owner of the name 'mine', found (demo 1.0 and rival|rival 1.0 and demo)"
    ):
        create("mine")
    with pytest.raises(SweepError, match=r"one owner of the name 'gespmm', found spmark and rival 1.0: uninstall one"):
        create("gespmm")
    with pytest.raises(
        DatasetError, match=r"spmark.sources: expected one owner of the name 'ogb', found spmark and ri"
    ):
        find_source("ogb")
    assert create("scipy_cpu").name == "scipy_cpu", "other names are not touched"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("demo_kernels:None_such", "expected demo 1.0 to hold demo_kernels:None_such, found AttributeError"),
        ("demo_absent:Mine", "to hold demo_absent:Mine, found ModuleNotFoundError: .*mend or uninstall"),
        ("demo_exits:Mine", "to hold demo_exits:Mine, found SystemExit: 77"),
        ("demo_kernels:Wrong", "expected the name 'mine', as demo 1.0 registers it, found 'wrong'"),
    ],
)
def test_a_broken_distribution_is_named(installed: Path, entry: str, message: str) -> None:
    (installed / "demo_kernels.py").write_text("class Wrong:\n    name = 'wrong'\n")
    (installed / "demo_exits.py").write_text("import sys\nsys.exit(77)\n")
    facts = installed / "demo-1.0.dist-info" / "entry_points.txt"
    facts.write_text(f"[spmark.implementations]\nmine = {entry}\n[spmark.sources]\nmine = {entry}\n")
    offers.cache_clear()
    with pytest.raises(SweepError, match=message):
        create("mine")
    with pytest.raises(DatasetError, match=r"demo 1.0"):
        find_source("mine")
    assert set(SOURCES) < set(source_names())
