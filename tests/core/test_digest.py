from __future__ import annotations

import logging
from pathlib import Path

import pytest

from spmark.impls.core.digest import Sources

NAMES = (
    "core/digest.py",
    "formats/ell.py",
    "kernels/k.cu",
    "runtime/include/v.cuh",
    "tuning/walk.py",
    "mine/plan.py",
    "mine/model.json",
    "other/plan.py",
)


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Give an `impls` folder in which `mine` depends on the shared folders, and not on `other`."""
    for name in NAMES:
        write(tmp_path / "impls", name, "code")
    return tmp_path / "impls"


def version(tree: Path) -> str:
    """Ask as a new process would."""
    return Sources(tree).version("mine")


def edited(tree: Path, name: str, text: str) -> str:
    write(tree, name, text)
    return version(tree)


@pytest.mark.parametrize("name", [*NAMES[:-1], "core/new.py", "mine/sub/a.cu", "mine/study.py"])
def test_version_changes_with_what_the_result_depends_on(tree: Path, name: str) -> None:
    before = version(tree)
    assert len(before) == 16
    assert int(before, 16) >= 0
    assert edited(tree, name, "changed") != before
    assert edited(tree, name, "code") == before or name not in NAMES


@pytest.mark.parametrize(
    "name",
    [
        "other/plan.py",
        "mine/README.md",
        "mine/__pycache__/plan.cpython-311.pyc",
        "mine/.plan.py.swp",
        "mine/study/a.py",
    ],
)
def test_version_stays_with_what_it_does_not(tree: Path, name: str) -> None:
    before = version(tree)
    assert edited(tree, name, "changed") == before


def test_version_leaves_prose_out_and_sees_code(tree: Path) -> None:
    write(tree, "mine/plan.py", 'def f():\n    """Say."""\n    return "# one"  # why\n')
    write(tree, "kernels/k.cu", "// why\n__global__ void f() { g(); }\n")
    write(tree, "mine/model.json", '{"a": 1}')
    before = version(tree)
    assert (
        edited(tree, "mine/plan.py", 'def f():\n\n    """Other words."""\n    # more\n    return "# one"\n') == before
    )
    assert edited(tree, "kernels/k.cu", "__global__ void f() {\n  g();  /* because */\n}\n") == before
    assert edited(tree, "kernels/k.cu", "__global__ void f() { h(); }\n") != before
    write(tree, "kernels/k.cu", "__global__ void f() { g(); }\n")
    assert edited(tree, "mine/plan.py", 'def f():\n    return "# two"\n') != before
    write(tree, "mine/plan.py", 'def f():\n    return "# one"\n')
    assert version(tree) == before
    assert edited(tree, "mine/model.json", '{"a":  1}') != before  # data count by their bytes


@pytest.mark.parametrize("undone", [False, True])
@pytest.mark.parametrize("name", ["mine/plan.py", "core/new.py"])
def test_code_that_changed_under_way_has_no_version_of_whole_code(
    tree: Path, name: str, undone: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """What was loaded may be the old code or the new, also where the edit was taken back in the meantime."""
    sources = Sources(tree)
    before = sources.version("mine")
    other = sources.version("other")
    with caplog.at_level(logging.WARNING):
        changed = edited(tree, name, "changed")
        if undone:
            (tree / name).unlink()
            if name in NAMES:
                write(tree, name, "code")
        mixed = sources.version("mine")
    if undone and name not in NAMES:
        assert mixed == before  # it is not there, as it was not at the beginning
        return
    assert mixed not in {before, changed}
    assert "has changed since this process began" in caplog.text
    assert (sources.version("other") == other) == name.startswith("mine")
    assert version(tree) == (before if undone else changed)


def test_a_file_that_goes_under_way_is_a_change(tree: Path) -> None:
    sources = Sources(tree)
    (tree / "formats/ell.py").unlink()
    assert sources.version("mine") != version(tree)
