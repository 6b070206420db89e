"""The documents: commands and options that they name exist, examples are valid, and generated pages are complete."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
import yaml
from scripts_by_name import load_script

from spmark.datasets.collection import matching
from spmark.datasets.published import TABLES
from spmark.datasets.sweep.model import ImplementationSpec, MatrixSpec, Sweep, expand
from spmark.datasets.sweep.reading import packaged_sweeps
from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.table import IMPLEMENTATIONS, OTHERS
from spmark.records.schema import Measurement
from spmark.suite.cli.main import app

ROOT = Path(__file__).parents[1]
PAGES = sorted(file for file in (ROOT / "docs").rglob("*.md") if file.name != "questions.md")
READMES = [ROOT / "README.md", ROOT / "REPRODUCING.md", ROOT / "CONTRIBUTING.md"]
QUOTED = {"own-kernel": ROOT / "examples/mykernel/mykernel.py"}
"""What the Python of a page is a part of."""
PROSE = [*PAGES, ROOT / "README.md", ROOT / "REPRODUCING.md", *sorted((ROOT / "impls").glob("*/README.md"))]
PROGRAM = re.compile(r"(?:^|[\s;])(?:\.venv/bin/)?spmark ([a-z].*)")


def shell_lines(page: Path) -> Iterator[str]:
    """Give the commands of a page's blocks of shell and YAML, continued lines joined and comments left out."""
    for block in re.findall(r"```(?:sh|yaml)\n(.*?)```", page.read_text(), re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            yield re.sub(r"(^|\s)#.*", "", line)


COMMANDS = [
    pytest.param(found[1], id=f"{page.stem}-{found[1].split()[0]}-{number}")
    for page in (*PAGES, *READMES)
    for number, line in enumerate(shell_lines(page))
    if (found := PROGRAM.search(line))
]


@pytest.mark.one_in(21)
@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_documents_exists_with_its_options(line: str) -> None:
    words = shlex.split(re.split(r";| \| | > ", line, maxsplit=1)[0])
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        name = words.pop(0)
        assert name in command.commands, f"spmark {line}"
        command = command.commands[name]
    command.make_context(name, words)  # raises where an option or a value is unknown


def test_documents_name_commands() -> None:
    assert len(COMMANDS) > 30


def python_blocks(page: Path) -> list[str]:
    """Give the blocks of Python of a page, without the indentation of lists."""
    return [textwrap.dedent(block) for block in re.findall(r"^ *```python\n(.*?)^ *```", page.read_text(), re.M | re.S)]


@pytest.mark.parametrize(
    "page",
    # tests/api/test_snippets.py and tests/test_walkthroughs.py run these pages in parts.
    [page for page in PAGES if not page.stem.startswith(("products", "contribute-")) and python_blocks(page)],
    ids=lambda page: page.stem,
)
def test_python_of_a_page_runs_from_top_to_bottom(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in python_blocks(page):
        if re.search(r"^(import|from) ", block, re.MULTILINE):
            exec(compile(block, page.name, "exec"), names)
        elif page.stem in QUOTED:
            assert block in QUOTED[page.stem].read_text(), "a part of a file stands there word for word"


def test_the_page_shows_the_whole_example_of_a_declared_kernel() -> None:
    [block] = re.findall(r"```cpp\n(.*?)```", (ROOT / "docs/tutorial/own-kernel.md").read_text(), re.DOTALL)
    assert block == (ROOT / "examples/mykernel/spmm_rows.cu").read_text()


@pytest.fixture(scope="module")
def generated() -> ModuleType:
    pytest.importorskip("mkdocs")
    return load_script("generate", ROOT / "docs")


def test_the_example_of_a_sweep_has_every_key(tmp_path: Path) -> None:
    text = (ROOT / "docs/howto/sweeps.md").read_text()
    block, relational, networks, chosen = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    for entry in yaml.safe_load(chosen)["matrices"]:
        assert entry["source"] == "suitesparse"
        assert entry.get("table", next(iter(TABLES))) in TABLES
        assert matching([], entry.get("where", "rows > 1")) == []
    written = yaml.safe_load(block)
    keys = {field.alias or name for name, field in Sweep.model_fields.items()}
    assert set(written) == keys
    (tmp_path / "matrices").mkdir()
    (tmp_path / "matrices/graphs.yaml").write_text("- {source: planetoid, name: pubmed}\n")
    (tmp_path / "mine.yaml").write_text(block)
    assert [spec.name for spec in Sweep.load(tmp_path / "mine.yaml").matrices] == [
        *("cora", "mine.mtx", "band_1024", "citeseer", "pubmed")
    ]
    of_rgms = {key: written[key] for key in ("schema", "name")} | yaml.safe_load(relational)
    (tmp_path / "rgms.yaml").write_text(yaml.safe_dump(of_rgms))
    cases = expand(Sweep.load(tmp_path / "rgms.yaml"), DeviceKind.CPU)
    assert {(case.matrix.relations, case.width_in) for case in cases} == {(0, 32), (0, 64), (12, 32), (12, 64)}
    of_networks = {key: written[key] for key in ("schema", "name")} | yaml.safe_load(networks)
    (tmp_path / "networks.yaml").write_text(yaml.safe_dump(of_networks))
    cases = expand(Sweep.load(tmp_path / "networks.yaml"), DeviceKind.CPU)
    assert {(case.op, case.width_in, case.width) for case in cases} == {("graphsage", 1433, 7), ("gcn", 1433, 7)}
    named = {key for entry in written["matrices"] if isinstance(entry, dict) for key in entry}
    assert named == set(MatrixSpec.model_fields) - {"folder"} | {"include"}
    assert {key for entry in written["implementations"] if isinstance(entry, dict) for key in entry} == set(
        ImplementationSpec.model_fields
    ) - {"folder"}


@pytest.mark.full
def test_every_figure_of_a_paper_has_its_command(generated: ModuleType) -> None:
    page = generated.figures()
    lines = [line for line in page.splitlines() if line.startswith("|")]
    for name in packaged_sweeps():
        sweep = Sweep.load(name)
        rows = [line for line in lines if f"`spmark run {name}`" in line]
        numbers = re.findall(r"\d+(?:\.\d+)?", sweep.figure)
        assert all(any(f" {number} |" in row for row in rows) for number in numbers), name
        assert rows or not sweep.paper, name
    stile = [line.split("|")[1].strip() for line in page.partition("## STile")[2].splitlines() if "spmark run" in line]
    assert stile.index("Figure 9") < stile.index("Figure 10") < stile.index("Table 5") < stile.index("Section 3.1")


@pytest.mark.full
def test_generated_pages_are_complete(generated: ModuleType) -> None:
    group: Any = typer.main.get_command(app)
    commands = generated.commands()
    for name, command in generated.every_command(group):
        assert f"## spmark {name}\n" in commands
        for parameter in command.params:
            shown = () if getattr(parameter, "hidden", False) else parameter.opts
            assert all(f"`{option}`" in commands for option in shown if option.startswith("--"))
    implementations = generated.implementations()
    assert all(f"## {name}\n" in implementations for name in (*IMPLEMENTATIONS, *OTHERS))
    assert all(f"| [`{name}`](#{name}) |" in implementations for name in (*IMPLEMENTATIONS, *OTHERS))
    assert "| `c` |" in implementations
    assert all(f"| `{name}` |" in generated.sweeps() for name in packaged_sweeps())
    assert all(
        f"| `{field.alias or name}` |" in generated.records() for name, field in Measurement.model_fields.items()
    )
    assert all(f"| `{field.alias or name}` |" in generated.sweep_file() for name, field in Sweep.model_fields.items())
