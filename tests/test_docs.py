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

from spmark.datasets.sweep import ImplementationSpec, MatrixSpec, Sweep
from spmark.datasets.sweepfile import packaged_sweeps
from spmark.impls.core.record import Measurement, Status
from spmark.impls.table import IMPLEMENTATIONS
from spmark.suite.cli import app
from spmark.suite.cli_options import ExitCode

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


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_documents_exists_with_its_options(line: str) -> None:
    name, *words = shlex.split(re.split(r";| \| | > ", line, maxsplit=1)[0])
    group: Any = typer.main.get_command(app)
    assert name in group.commands, f"spmark {name}"
    group.commands[name].make_context(name, words)  # raises where an option or a value is unknown


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


@pytest.mark.parametrize("folder", ["suite", "examples", "docs"])
def test_what_installs_an_extra_names_no_registry(folder: str) -> None:
    files = [file for suffix in ("py", "md") for file in (ROOT / folder).rglob(f"*.{suffix}")]
    of_a_registry = re.compile(r"install ['\"]spmark\[")
    named = [file for file in (*files, ROOT / "spmark/torch.py") if of_a_registry.search(file.read_text())]
    assert not named, "spmark is on no registry: pip install -e '.[EXTRA]' in a checkout"


@pytest.fixture(scope="module")
def generated() -> ModuleType:
    pytest.importorskip("mkdocs")
    return load_script("generate", ROOT / "docs")


def test_the_example_of_a_sweep_has_every_key(tmp_path: Path) -> None:
    text = (ROOT / "docs/howto/sweeps.md").read_text()
    [block] = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    written = yaml.safe_load(block)
    keys = {field.alias or name for name, field in Sweep.model_fields.items()}
    assert set(written) == keys
    (tmp_path / "matrices").mkdir()
    (tmp_path / "matrices/graphs.yaml").write_text("- {source: planetoid, name: pubmed}\n")
    (tmp_path / "mine.yaml").write_text(block)
    assert [spec.name for spec in Sweep.load(tmp_path / "mine.yaml").matrices] == [
        *("cora", "mine.mtx", "band_1024", "citeseer", "pubmed")
    ]
    named = {key for entry in written["matrices"] if isinstance(entry, dict) for key in entry}
    assert named == set(MatrixSpec.model_fields) - {"folder"} | {"include"}
    assert {key for entry in written["implementations"] if isinstance(entry, dict) for key in entry} == set(
        ImplementationSpec.model_fields
    ) - {"folder"}


def test_the_gate_of_a_ci_service_is_a_job_that_compares() -> None:
    [block] = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/tutorial/gate.md").read_text(), re.DOTALL)
    last = yaml.safe_load(block)["jobs"]["gate"]["steps"][-1]
    assert last["run"].startswith(".venv/bin/spmark compare ")


def test_every_status_and_exit_code_is_explained() -> None:
    page = (ROOT / "docs/howto/troubleshoot.md").read_text()
    assert [status for status in Status if f"\n| `{status}` | " not in page] == []
    assert [code for code in ExitCode if f"\n| {int(code)} | " not in page] == []


def test_generated_pages_are_complete(generated: ModuleType) -> None:
    group: Any = typer.main.get_command(app)
    commands = generated.commands()
    for name, command in group.commands.items():
        assert f"## spmark {name}\n" in commands
        for parameter in command.params:
            assert all(f"`{option}`" in commands for option in parameter.opts if option.startswith("--"))
    implementations = generated.implementations()
    assert all(f"## {name}\n" in implementations for name in IMPLEMENTATIONS)
    assert all(f"| [`{name}`](#{name}) |" in implementations for name in IMPLEMENTATIONS)
    assert "| `c` |" in implementations
    assert all(f"| `{name}` |" in generated.sweeps() for name in packaged_sweeps())
    assert all(
        f"| `{field.alias or name}` |" in generated.records() for name, field in Measurement.model_fields.items()
    )
    assert all(f"| `{field.alias or name}` |" in generated.sweep_file() for name, field in Sweep.model_fields.items())


def test_examples_are_shown_with_what_they_do(generated: ModuleType) -> None:
    page = generated.examples()
    for file in sorted((ROOT / "examples").glob("*.*")):
        assert f"| [{file.name}](#" in page
        section = page.split(f"\n## {file.name}\n")[1].split("\n## ")[0]
        if file.suffix != ".py":
            assert section.startswith("\nRecords with pandas.\n") and section.count("```python\n") == 6
        else:
            assert f"python examples/{file.name}" in section.split("```")[0]
            code = section.split("```python\n")[1].rstrip().removesuffix("```")
            assert file.read_text().endswith("\n\n" + code)


def test_notes_link_the_site_s_copies_of_figures(generated: ModuleType) -> None:
    link = "[SpMM](../../report/reference/h200/stile_fig7_spmm/speedup-per-matrix.png)"
    assert link in " ".join((ROOT / "docs/notes/stile.md").read_text().split())
    assert generated.on_page_markdown(link, page=None) == "[SpMM](../figures/stile_fig7_spmm/speedup-per-matrix.png)"


def test_the_start_page_links_the_site_s_copy_of_the_citation(generated: ModuleType) -> None:
    link = "[CITATION.cff](../CITATION.cff)"
    assert link in (ROOT / "docs/index.md").read_text()
    assert generated.on_page_markdown(link, page=None) == "[CITATION.cff](CITATION.cff)"


def test_generated_tables_have_as_many_cells_as_heads(generated: ModuleType) -> None:
    for page in (
        generated.commands,
        generated.implementations,
        generated.records,
        generated.sweep_file,
        generated.sweeps,
    ):
        rows = [line for line in page().splitlines() if line.startswith("|")]
        for row in rows:
            assert len(re.split(r"(?<!\\)\|", row)) in (5, 6, 7), row


def test_every_page_is_in_the_navigation() -> None:
    class Loader(yaml.SafeLoader):
        pass

    def pages(entry: Any) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        for inner in entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ():
            yield from pages(inner)

    named = set(pages(yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)["nav"]))
    made = {f"reference/{name}.md" for name in ("commands", "sweepfile", "records", "implementations", "sweeps")}
    made |= {"howto/examples.md"}
    assert named == {str(page.relative_to(ROOT / "docs")) for page in PAGES} | made


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_paragraphs_and_sentences_are_short(page: Path) -> None:
    text = re.sub(r"```.*?```|<!--.*?-->\n", "", page.read_text(), flags=re.DOTALL)
    for paragraph in re.split(r"\n\s*\n|\n(?= *- | *\d+\. )", text):
        if not paragraph.lstrip().startswith(("|", "#", ":::")):
            assert len(paragraph.split()) <= 60, paragraph
    sentences = re.split(r"(?<=[.:?!])\s+", re.sub(r"^(\||#|:::).*$", "", text, flags=re.MULTILINE))
    words = [len(sentence.split()) for sentence in sentences if len(sentence.split()) > 2]
    assert not words or sum(words) / len(words) <= 20


def test_pictures_of_published_sweeps_are_those_that_documents_show() -> None:
    published = ROOT / "report" / "reference"
    named = [line.split(": ") for line in (published / "figures.txt").read_text().splitlines()]
    wanted = {f"{folder}/{figure}.png" for folder, figures in named for figure in figures.split()}
    assert {path.relative_to(published).as_posix() for path in published.rglob("*.png")} == wanted
    texts = "".join(page.read_text() for page in {*PAGES, *READMES, *PROSE})
    assert set(re.findall(r"\.\./report/reference/([^\s)]+\.png)", texts)) == wanted
