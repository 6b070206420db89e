"""The wheel: what is in it, and that CONTRIBUTING.md's recipe for an implementation works where it is installed.

The wheel is built from a copy of the sources and installed into an environment of its own, which borrows the
dependencies of this one: nothing is downloaded, and the checkout is not importable there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from textwrap import dedent

import pytest

from spmark.impls.core.record import Measurement, Status
from spmark.impls.core.recordfile import read_rows

ROOT = Path(__file__).parents[1]
MAPPED = ("impls", "datasets", "suite", "report")
DATA = (".cu", ".cuh", ".h", ".hpp", ".cpp", ".yaml", ".json", ".npz", ".html", ".css", ".js")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy, so that neither folder sees what an earlier build left behind."""
    folder = tmp_path_factory.mktemp("wheel")
    sources = folder / "sources"
    for name in ("spmark", *MAPPED):
        shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    built = subprocess.run([*pip, str(sources)], capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = folder.glob("*.whl")
    return path


class Installed:
    """An environment with the wheel in it."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
        self.python = folder / "venv" / "bin" / "python"
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "--disable-pip-version-check", "install"]
        done = subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        (site,) = (folder / "venv").glob("lib/python*/site-packages")
        # A folder named in a .pth file is searched, but .pth files inside it are not read: the editable install of the
        # checkout, which is one, stays out.
        borrowed = dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))
        (site / "borrowed.pth").write_text("\n".join(borrowed) + "\n")
        self.package = site / "spmark"

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, outside of the checkout."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("SPMARK_", "PYTHON"))}
        return subprocess.run(
            [str(self.python.with_name(command[0])), *command[1:]],
            cwd=self.folder,
            env={**kept, "SPMARK_CACHE": str(self.folder / "cache")},
            capture_output=True,
            text=True,
            timeout=240,
        )

    def spmark(self, *args: str) -> subprocess.CompletedProcess[str]:
        done = self.run("spmark", *args)
        assert done.returncode == 0, f"spmark {' '.join(args)}\n{done.stdout}\n{done.stderr}"
        return done


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("elsewhere"), wheel)


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_has_every_module_and_data_file(wheel: Path) -> None:
    wanted = {
        f"spmark/{path.relative_to(ROOT).as_posix()}"
        for folder in MAPPED
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", *DATA) or path.name == "py.typed"
    }
    assert {f"spmark/{folder}/py.typed" for folder in MAPPED} <= wanted
    kinds = {"impls/liteform/models": ".npz", "impls/liteform/schedules": ".json", "impls/stile/calibrations": ".json"}
    for folder, kind in kinds.items():
        assert [name for name in wanted if name.startswith(f"spmark/{folder}/") and name.endswith(kind)], folder
    assert not wanted - contents(wheel), "missing from the wheel (a folder of modules needs an __init__.py)"


def test_the_wheel_has_nothing_else(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in contents(wheel)}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"spmark"}, "`datasets` would shadow another's"
    assert not [name for name in contents(wheel) if "test" in Path(name).name or name.endswith((".pyc", ".so"))]


def test_the_installed_package_is_the_one_that_runs(installed: Installed) -> None:
    where = installed.run("python", "-c", "import spmark.impls.table, spmark.suite as s; print(*s.__path__)")
    assert where.stdout.strip() == str(installed.package / "suite"), where.stderr


def test_what_was_measured_once_is_found_where_it_is_installed(installed: Installed) -> None:
    program = (
        "from spmark.impls.liteform.predictor import SHIPPED, find, shipped\n"
        "from spmark.impls.liteform.schedule import table_for\n"
        "print(*shipped(), find(SHIPPED).card.gpu, len(table_for('nvidia-h200').entries) > 0)\n"
    )
    found = installed.run("python", "-c", program)
    assert found.stdout.split() == ["nvidia-h200", "published-v100", "nvidia-h200", "True"], found.stderr


def test_the_packaged_smoke_sweep_runs(installed: Installed) -> None:
    out = installed.folder / "smoke"
    some = [word for only in ("implementation=scipy_cpu", "width=32", "dtype=float32") for word in ("--only", only)]
    installed.spmark("run", "smoke", "--device", "cpu", *some, "--out", str(out))
    rows = records(out)
    assert rows
    assert {row.implementation for row in rows} == {"scipy_cpu"}
    assert {row.status for row in rows} == {Status.OK}


def test_the_recipe_for_an_implementation_works(installed: Installed) -> None:
    recipe = Recipe("Add an implementation")
    for path in recipe.files("impls/"):
        target = installed.package / path
        target.parent.mkdir(exist_ok=True)
        (target.parent / "__init__.py").touch()
        target.write_text(recipe.block(path))
    table = installed.package / "impls" / "table.py"
    text = table.read_text()
    start = "IMPLEMENTATIONS: Mapping[str, str] = {\n"
    assert start in text
    table.write_text(text.replace(start, start + recipe.block("impls/table.py")))
    (installed.folder / "mine.yaml").write_text(recipe.block("mine.yaml"))

    out = installed.folder / "results"
    installed.spmark("run", "mine.yaml", "--device", "cpu", "--out", str(out))
    rows = records(out)
    assert {row.implementation for row in rows} == {"rowwise_cpu", "scipy_cpu"}
    assert {row.status for row in rows} == {Status.OK}, [row.reason for row in rows]
    assert all(row.samples_us and row.baseline for row in rows if row.implementation == "rowwise_cpu")
    report = installed.spmark("report", str(out), "--out", str(installed.folder / "page"))
    assert "rowwise_cpu" in (installed.folder / "page" / "index.html").read_text(), report.stdout


def test_the_example_of_the_readme_runs(installed: Installed) -> None:
    example = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert example
    check = "np.testing.assert_allclose(c, a @ b, rtol=1e-4)\n"
    done = installed.run("python", "-c", example[1] + check)
    assert done.returncode == 0, done.stderr


def records(folder: Path) -> list[Measurement]:
    return [row for path in folder.rglob("records.jsonl") for row in read_rows(path, Measurement)]


class Recipe:
    """A section of CONTRIBUTING.md: its blocks of code, each named by the last file in backquotes before it."""

    def __init__(self, title: str) -> None:
        text = (ROOT / "CONTRIBUTING.md").read_text()
        (section,) = (part for part in text.split("\n## ") if part.startswith(title))
        self._blocks: dict[str, str] = {}
        name, block = "", None
        for line in section.splitlines():
            if not line.strip().startswith("```"):
                if block is not None:
                    block.append(line)
                elif files := re.findall(r"`([\w/]+\.(?:py|md|yaml))`", line):
                    name = files[-1]
            elif block is None:
                block = []
            else:
                self._blocks[name] = dedent("\n".join(block)) + "\n"
                block = None

    def files(self, prefix: str) -> list[str]:
        """Give the new files below a folder: all that are named but the table."""
        return [name for name in self._blocks if name.startswith(prefix) and name != "impls/table.py"]

    def block(self, name: str) -> str:
        """Give the block of a file, without the indentation of the list that it stands in."""
        return self._blocks[name]
