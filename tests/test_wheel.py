"""The wheel: what is in it, and that CONTRIBUTING.md's recipe for an implementation works where it is installed.

The wheel is built from a copy of the sources and installed into an environment of its own, which borrows the
dependencies of this one: nothing is downloaded, and the checkout is not importable there. Everything else that a person
may build from (a clone, an archive, the sdist) gives the same wheel, and what lost the links of ``spmark/`` is refused.
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

from spmark.records.rowfile import read_rows
from spmark.records.schema import Measurement, Status

ROOT = Path(__file__).parents[1]
LINKED = ("impls", "records", "studies", "datasets", "suite", "report")
DATA = (".cu", ".cuh", ".h", ".hpp", ".cpp", ".yaml", ".tsv", ".json", ".npz", ".html", ".css", ".js")

pytestmark = pytest.mark.full


SOURCES = ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE")


def build(what: str, sources: Path, into: Path) -> subprocess.CompletedProcess[str]:
    """Ask the build backend for a ``wheel`` or an ``sdist``, without the network."""
    if what == "wheel":
        pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(into)]
        return subprocess.run([*pip, str(sources)], capture_output=True, text=True)
    program = (
        f"import sys; sys.path.insert(0, 'scripts'); import build_backend; build_backend.build_sdist({str(into)!r})"
    )
    return subprocess.run([sys.executable, "-c", program], cwd=sources, capture_output=True, text=True)


def build_wheel(sources: Path, into: Path) -> Path:
    built = build("wheel", sources, into)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = into.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy what a wheel is made of, so that neither folder sees what an earlier build left behind."""
    folder = tmp_path_factory.mktemp("sources")
    for name in ("spmark", *LINKED):
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=ignored)
    (folder / "scripts").mkdir()
    for name in (*SOURCES, "scripts/build_backend.py"):
        shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(sources, tmp_path_factory.mktemp("wheel"))


def git(*words: str) -> None:
    """Run git on the checkout, or skip where the tree is no checkout (an image, an sdist)."""
    if not (ROOT / ".git").exists():
        pytest.skip("needs a git checkout")
    subprocess.run(["git", "-C", str(ROOT), *words], check=True, capture_output=True)


def committed() -> set[str]:
    """Give the names in a wheel of what HEAD holds."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-tree", "-r", "--name-only", "HEAD", *LINKED],
        check=True,
        capture_output=True,
        text=True,
    )
    names = [Path(name) for name in listed.stdout.splitlines()]
    return {f"spmark/{name.as_posix()}" for name in names if name.suffix in (".py", *DATA) or name.name == "py.typed"}


def test_an_editable_install_is_found_beside_its_checkout(sources: Path, tmp_path: Path) -> None:
    """There, the checkout is a folder called spmark without code of its own."""
    (tmp_path / "spmark").mkdir()
    into = tmp_path / "wheel"
    into.mkdir()
    program = f"import sys; sys.path.insert(0, 'scripts'); import build_backend as b; b.build_editable({str(into)!r})"
    subprocess.run([sys.executable, "-c", program], cwd=sources, check=True, capture_output=True)
    (wheel,) = into.glob("*.whl")
    shutil.unpack_archive(wheel, tmp_path / "site", "zip")
    asked = f"import site; site.addsitedir({str(tmp_path / 'site')!r}); import spmark; print(spmark.__file__)"
    found = subprocess.run([sys.executable, "-IS", "-c", f"import sys; sys.path.insert(0, ''); {asked}"], cwd=tmp_path,
                           check=True, capture_output=True, text=True)  # fmt: skip
    assert found.stdout.strip() == str(sources / "spmark/__init__.py")


def test_a_clone_builds(tmp_path: Path) -> None:
    git("clone", "--quiet", "--depth", "1", f"file://{ROOT}", str(tmp_path / "clone"))
    assert not committed() - contents(build_wheel(tmp_path / "clone", tmp_path))


@pytest.mark.full
def test_an_archive_of_git_builds(tmp_path: Path) -> None:
    git("archive", "--format", "tar", "--output", str(tmp_path / "archive.tar"), "HEAD")
    shutil.unpack_archive(tmp_path / "archive.tar", tmp_path / "unpacked", filter="tar")
    assert not committed() - contents(build_wheel(tmp_path / "unpacked", tmp_path))


def test_the_sdist_builds_the_same_wheel(sources: Path, wheel: Path, tmp_path: Path) -> None:
    built = build("sdist", sources, tmp_path)
    assert built.returncode == 0, built.stdout + built.stderr
    (sdist,) = tmp_path.glob("*.tar.gz")
    shutil.unpack_archive(sdist, tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert contents(build_wheel(unpacked, tmp_path)) == contents(wheel)


@pytest.mark.parametrize("what", ["wheel", pytest.param("sdist", marks=pytest.mark.full)])
def test_an_archive_that_lost_the_links_is_refused(what: str, tmp_path: Path) -> None:
    git("archive", "--format", "zip", "--output", str(tmp_path / "archive.zip"), "HEAD")
    with zipfile.ZipFile(tmp_path / "archive.zip") as archive:  # makes text files of links, as on Windows
        archive.extractall(tmp_path / "unpacked")
    assert (tmp_path / "unpacked" / "spmark" / "impls").is_file()
    built = build(what, tmp_path / "unpacked", tmp_path)
    assert built.returncode != 0
    said = built.stdout + built.stderr
    for words in ("spmark/impls", "expected", "links", "git clone", "sdist"):
        assert words in said
    assert not [path.name for path in tmp_path.iterdir() if path.suffix in (".whl", ".gz")]


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
        for folder in LINKED
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", *DATA) or path.name == "py.typed"
    }
    assert {f"spmark/{folder}/py.typed" for folder in LINKED} <= wanted
    kinds = {"impls/liteform/models": ".npz", "impls/liteform/schedules": ".json", "impls/stile/calibrations": ".json"}
    for folder, kind in kinds.items():
        assert [name for name in wanted if name.startswith(f"spmark/{folder}/") and name.endswith(kind)], folder
    assert not wanted - contents(wheel), "missing from the wheel (a folder of modules needs an __init__.py)"


def test_the_wheel_has_nothing_else(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in contents(wheel)}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"spmark"}, "`datasets` would shadow another's"
    assert not [name for name in contents(wheel) if "test" in Path(name).name or name.endswith((".pyc", ".so"))]
    assert not [name for name in contents(wheel) if "/reference/h200/" in name], "records are in the repository alone"
    assert not [name for name in contents(wheel) if name.endswith(".safetensors")], "`spmark fetch models` brings them"
    assert "spmark/impls/dash/models/published.json" in contents(wheel)


def test_no_folder_of_the_checkout_is_a_package_of_its_own(tmp_path: Path) -> None:
    """The editable install must not put the top of the checkout on the path: ``datasets`` is another's name."""
    program = (
        "from importlib.util import find_spec\n"
        f"wrong = {{name: spec.origin for name in {LINKED!r} if (spec := find_spec(name)) is not None}}\n"
        f"print(*[place for place in wrong.values() if {str(ROOT)!r} in str(place)])\n"
        "import spmark.impls, spmark.studies, spmark.datasets, spmark.suite, spmark.report\n"
    )
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    asked = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=kept, capture_output=True, text=True)
    assert asked.returncode == 0, asked.stderr
    assert not asked.stdout.strip()


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
    assert found.stdout.split() == ["nvidia-h200", "nvidia-h200-published", "published-v100", "nvidia-h200", "True"], (
        found.stderr
    )


@pytest.mark.full
def test_the_packaged_smoke_sweep_runs(installed: Installed) -> None:
    out = installed.folder / "smoke"
    some = [word for only in ("implementation=scipy_cpu", "width=32", "dtype=float32") for word in ("--only", only)]
    installed.spmark("run", "smoke", "--device", "cpu", *some, "--out", str(out))
    rows = records(out)
    assert rows
    assert {row.spec.implementation for row in rows} == {"scipy_cpu"}
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
    assert {row.spec.implementation for row in rows} == {"rowwise_cpu", "scipy_cpu"}
    assert {row.status for row in rows} == {Status.OK}, [row.reason for row in rows]
    assert all(row.samples_us and row.baseline for row in rows if row.spec.implementation == "rowwise_cpu")
    report = installed.spmark("report", str(out), "--out", str(installed.folder / "page"))
    assert "rowwise_cpu" in (installed.folder / "page" / "index.html").read_text(), report.stdout


@pytest.mark.full
def test_the_example_of_the_readme_runs(installed: Installed) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    done = installed.run("python", "-c", example + "np.testing.assert_allclose(c, a @ b, rtol=1e-4)\n")
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
