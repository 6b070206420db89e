"""The lists of planted faults fit the tree, and the script judges by them."""

from __future__ import annotations

import ast
import subprocess
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest
from mutations import run
from mutations.run import AREAS, ROOT, Fault, Outcome, Workplace, read_lists

FORTY, EARLIER = read_lists()
EVERY = {fault.name: fault for fault in chain(FORTY, EARLIER)}


def test_there_are_forty_faults_and_more_over_six_areas():
    counts = Counter(fault.area for fault in FORTY)
    assert counts.total() >= 40
    assert set(counts) == set(AREAS)
    assert counts["cuda"] >= 10
    assert len(EVERY) == len(FORTY) + len(EARLIER)
    assert sum(bool(fault.survives) for fault in FORTY) <= 2


@pytest.mark.parametrize("name", EVERY)
def test_a_fault_fits_the_tree(name):
    fault = EVERY[name]
    before = (ROOT / fault.file).read_text(encoding="utf-8")
    assert fault.planted(before) != before
    assert fault.file.endswith((".cu", ".cuh")) == (fault.area == "cuda")
    if fault.file.endswith(".py"):
        ast.parse(fault.planted(before))
    assert all((ROOT / path.partition("::")[0]).exists() for path in fault.tests)
    assert fault.tests


@pytest.mark.parametrize(("content", "count"), [("b", 0), ("a a", 2)])
def test_a_text_that_does_not_occur_once_is_refused(content, count):
    fault = Fault("one", "formats", "impls/one.py", "a", "c", "wrong")
    with pytest.raises(ValueError, match=f"one: expected its text once in impls/one.py, found it {count} times"):
        fault.planted(content)


SUM = "def add(a, b):\n    count = 0\n    while count < b:\n        count += 1\n    return a + count\n"
TEST = "from spmark.one import add\n\ndef test_add():\n    assert add(1, 2) == 3\n"


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    """Give the copy of a project of one function, which stands in a folder through a link as spmark's do."""
    root = tmp_path / "root"
    for name, content in {"spmark/__init__.py": "", "real/one.py": SUM, "tests/test_one.py": TEST}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    (root / "spmark/one.py").symlink_to("../real/one.py")
    (root / "tests/test_broken.py").write_text("def test_it():\n    assert False\n")
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    monkeypatch.setattr(run, "ROOT", root)
    return Workplace(tmp_path / "place", 20.0)


def fault(text: str, instead: str, *tests: str) -> Fault:
    return Fault("one", "formats", "real/one.py", text, instead, "wrong", tests or ("tests/test_one.py",))


def test_faults_are_judged_in_a_copy(workplace: Workplace):
    assert (workplace.tree / "spmark/one.py").is_symlink()
    seen = workplace.judge(fault("a + count", "a - count"))
    assert seen.outcome is Outcome.RED
    assert seen.note.startswith("FAILED tests/test_one.py::test_add")
    assert workplace.judge(fault("count < b", "count != b")).outcome is Outcome.GREEN
    assert workplace.judge(fault("def add", "def odd")).outcome is Outcome.RED  # no test can be collected
    assert (workplace.tree / "real/one.py").read_text() == (run.ROOT / "real/one.py").read_text() == SUM
    assert not list(run.ROOT.rglob("__pycache__"))


@pytest.mark.parametrize(("control_s", "outcome"), [(0.5, Outcome.RED), (2.0, Outcome.UNCLEAR)])
def test_no_end_is_red_where_the_tests_end_early_without_the_fault(
    workplace: Workplace, control_s: float, outcome: Outcome
):
    endless = fault("count += 1", "count += 0")
    workplace.limit_s = 3.0
    workplace._control_s[endless.tests] = control_s
    assert workplace.judge(endless).outcome is outcome


@pytest.mark.parametrize(("test", "words"), [("test_broken.py", "to pass without a fault"), ("none.py", "none.py")])
def test_tests_that_fail_without_a_fault_judge_nothing(workplace: Workplace, test: str, words: str):
    with pytest.raises(SystemExit, match=words):
        workplace.judge(fault("a + count", "a - count", f"tests/{test}"))
