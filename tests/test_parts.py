"""Which tests a run collects: the usual ones, the rest, all of them; and what it says of those that need a GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOME = """
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def noted(request):
    with (Path(__file__).parent / "ran").open("a") as file:
        file.write(request.node.name + "\\n")


def test_usual():
    pass


@pytest.mark.parametrize("size", [1, pytest.param(2, marks=pytest.mark.full)])
def test_sampled(size):
    pass


@pytest.mark.gpu
@pytest.mark.parametrize("number", range(1200))
def test_gpu(number):
    pass


class TestMethods:
    @pytest.mark.gpu
    @pytest.mark.full
    def test_gpu_too(self):
        pass
"""
FUZZ = "def test_target():\n    open(__file__ + '.ran', 'w').close()\n"
GPU_LINE = "1,201 tests need an NVIDIA GPU and were not collected: no driver here"
REST_LINE = "1 tests were left to --tests=rest (make test-rest, make test-all)"


class Suite:
    """A folder with this project's conftest.py, some tests, and a machine of which the driver is known."""

    def __init__(self, folder: Path, missing: str | None) -> None:
        self.folder = folder
        conftest = (ROOT / "tests" / "conftest.py").read_text()
        (folder / "conftest.py").write_text(f"{conftest}\n\ndef cuda_missing():\n    return {missing!r}\n")
        shutil.copy(ROOT / "pyproject.toml", folder)
        (folder / "tests").mkdir()
        (folder / "test_some.py").write_text(SOME)
        (folder / "fuzz").mkdir()
        (folder / "fuzz" / "test_fuzz.py").write_text(FUZZ)

    def run(self, *args: str, **environment: str) -> tuple[list[str], str]:
        """Give the names of the tests that ran, and the terminal's text."""
        kept = {key: value for key, value in os.environ.items() if key not in ("SPMARK_FUZZ_SECONDS", "PYTEST_ADDOPTS")}
        ran, fuzzed = self.folder / "ran", self.folder / "fuzz" / "test_fuzz.py.ran"
        for path in (ran, fuzzed):
            path.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "-q", "test_some.py", "fuzz", *args]
        done = subprocess.run(
            command, cwd=self.folder, env={**kept, **environment}, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return sorted(ran.read_text().split()) + ["fuzz"] * fuzzed.is_file(), done.stdout


@pytest.mark.parametrize(
    ("args", "environment", "wanted", "says"),
    [
        ([], {}, ["test_sampled[1]", "test_usual", "fuzz"], True),
        (["-n2"], {"SPMARK_FUZZ_SECONDS": "2"}, ["test_sampled[1]", "test_usual", "fuzz"], True),
        (["--tests=rest"], {}, ["test_sampled[2]"], False),
        (["--tests=rest"], {"SPMARK_FUZZ_SECONDS": "30"}, ["test_sampled[2]", "fuzz"], False),
        (["--tests=all"], {}, ["test_sampled[1]", "test_sampled[2]", "test_usual", "fuzz"], False),
    ],
    ids=["usual", "usual_in_workers", "rest", "rest_with_fuzzing", "all"],
)
def test_without_a_driver(
    tmp_path: Path, args: list[str], environment: dict[str, str], wanted: list[str], says: bool
) -> None:
    ran, said = Suite(tmp_path, "no driver here").run(*args, **environment)
    assert ran == wanted
    lines = said.splitlines()
    assert lines.count(GPU_LINE) == 1, said
    assert lines.count(REST_LINE) == says, said
    assert "skipped" not in said


def test_with_a_driver_what_needs_a_gpu_is_run(tmp_path: Path) -> None:
    ran, said = Suite(tmp_path, None).run("-k", "gpu_too or 1199 or usual", "--tests=all")
    assert ran == ["test_gpu[1199]", "test_gpu_too", "test_usual"]
    assert "NVIDIA" not in said
