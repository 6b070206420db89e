from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from spmark.impls.core import digest as module
from spmark.impls.core.digest import files_digest, implementation_version


def write(root: Path, files: dict[str, str]) -> list[Path]:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return [root / name for name in files]


def test_digest_is_of_names_and_contents(tmp_path: Path) -> None:
    files = write(tmp_path / "one", {"a.py": "x", "b/c.cu": "yz"})
    found = files_digest(files, tmp_path / "one")
    assert len(found) == 16
    assert int(found, 16) >= 0
    assert found == files_digest(reversed(files), tmp_path / "one")
    assert found == files_digest(write(tmp_path / "two", {"a.py": "x", "b/c.cu": "yz"}), tmp_path / "two")
    others = [{"a.py": "x", "b/c.cu": "yZ"}, {"a.py": "x", "b/d.cu": "yz"}, {"a.py": "xy", "b/c.cu": "z"}]
    digests = {files_digest(write(tmp_path / f"{i}", o), tmp_path / f"{i}") for i, o in enumerate(others)}
    assert len(digests | {found}) == 4


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give an `impls` folder in which `mine` depends on core, formats, kernels and runtime, and not on `other`."""
    names = (
        "core/digest.py",
        "formats/ell.py",
        "kernels/k.cu",
        "runtime/include/v.cuh",
        "mine/plan.py",
        "other/plan.py",
    )
    write(tmp_path / "impls", dict.fromkeys(names, "code"))
    monkeypatch.setattr(module, "__file__", str(tmp_path / "impls" / "core" / "digest.py"))
    implementation_version.cache_clear()
    yield tmp_path / "impls"
    implementation_version.cache_clear()


def version(tree: Path, name: str, text: str) -> str:
    write(tree, {name: text})
    implementation_version.cache_clear()
    return implementation_version("mine")


@pytest.mark.parametrize(
    "name", ["core/new.py", "formats/ell.py", "kernels/k.cu", "runtime/include/v.cuh", "mine/a.cu"]
)
def test_version_changes_with_what_the_result_depends_on(tree: Path, name: str) -> None:
    before = implementation_version("mine")
    assert version(tree, name, "changed") != before


@pytest.mark.parametrize("name", ["other/plan.py", "mine/README.md", "mine/__pycache__/plan.cpython-311.pyc"])
def test_version_stays_with_what_it_does_not(tree: Path, name: str) -> None:
    before = implementation_version("mine")
    assert version(tree, name, "changed") == before


def test_version_does_not_depend_on_where_the_tree_is(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = implementation_version("mine")
    moved = shutil.copytree(tree, tree.parent / "elsewhere" / "impls")
    monkeypatch.setattr(module, "__file__", str(moved / "core" / "digest.py"))
    implementation_version.cache_clear()
    assert implementation_version("mine") == before
