"""Pages of the documentation that follow from the code: MkDocs calls `on_files` before it reads any page.

Notes link published figures where the repository has them, and the site has copies of these figures. What can be read
from the program is never written twice: commands and their options, keys of sweeps, fields of records, implementations
with their tunables, sweeps, the command of each figure of a paper, examples.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from pydantic import BaseModel

from spmark.datasets.sweep.model import ImplementationSpec, MatrixSpec, Sweep
from spmark.datasets.sweep.reading import packaged_sweeps
from spmark.impls.table import IMPLEMENTATIONS, OTHERS, create
from spmark.records.schema import CandidateRow, Environment, Measurement
from spmark.suite.cli.main import app
from spmark.suite.plan.papers import ALL, read_papers

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
FIGURES = "report/reference/h200"
NUMBERED = re.compile(r"(Figure|Table|Section)s? ((?:[0-9.]+(?:, | and )?)+)")
"""Where a sweep says what it reproduces: ``Figures 7 and 8``, ``Table 2``."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    pages = {
        "reference/commands.md": commands(),
        "reference/sweepfile.md": sweep_file(),
        "reference/records.md": records(),
        "reference/implementations.md": implementations(),
        "reference/sweeps.md": sweeps(),
        "reference/figures.md": figures(),
        "howto/examples.md": examples(),
    }
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    for figure in sorted((ROOT / FIGURES).glob("*/*.png")):
        place = str(figure.relative_to(ROOT / FIGURES))
        files.append(File.generated(config, f"figures/{place}", abs_src_path=str(figure)))
    files.append(File.generated(config, "CITATION.cff", abs_src_path=str(ROOT / "CITATION.cff")))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Let links to published figures and to the citation lead to the site's copies."""
    return markdown.replace(f"](../../{FIGURES}/", "](../figures/").replace("](../CITATION.cff)", "](CITATION.cff)")


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Write a Markdown table."""
    heads = list(head)
    lines = [heads, ["---"] * len(heads), *([_cell(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def commands() -> str:
    """Write every command with its help, arguments and options."""
    parts = ["# Commands\n", "`spmark COMMAND --help` says the same in a terminal.\n"]
    group: Any = typer.main.get_command(app)
    for name, command in every_command(group):
        parts += [f"## spmark {name}\n", _plain(command.help or "") + "\n"]
        rows = [
            [_names(parameter), _plain(getattr(parameter, "help", None) or ""), _default(parameter)]
            for parameter in command.params
            if not parameter.hidden
        ]
        parts.append(table(("argument or option", "meaning", "default"), rows) if rows else "")
    return "\n".join(parts)


def every_command(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Give the commands of a group by their words, those of a group within it after its name."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from every_command(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def sweep_file() -> str:
    """Write the keys of a sweep file."""
    parts = [
        "# Sweep files\n",
        "[Write a sweep](../howto/sweeps.md) has an example of every key. An unknown key is an error.\n",
    ]
    titles = {
        Sweep: "A sweep",
        MatrixSpec: "An entry of `matrices`",
        ImplementationSpec: "An entry of `implementations`",
    }
    return "\n".join([*parts, *(_model(model, title) for model, title in titles.items())])


def records() -> str:
    """Write the fields of records."""
    parts = [
        "# Records\n",
        "A run leaves JSON lines in `results/SWEEP/DEVICE/`: `records.jsonl` has a line for each case, "
        "`environments.jsonl` for each machine and set of libraries, `candidates.jsonl` for each config that a "
        "search tried, and `runs.jsonl` for each command. Records hold facts only. Medians, speed-ups and intervals "
        "are derived when a page is drawn.\n",
    ]
    titles = {
        Measurement: "A line of `records.jsonl`",
        **{model: f"`{key}` in a line of `records.jsonl`" for key, model in _parts_of(Measurement)},
        Environment: "`environment` in a line of `environments.jsonl`",
        CandidateRow: "A line of `candidates.jsonl`",
    }
    return "\n".join([*parts, *(_model(model, title) for model, title in titles.items())])


def _parts_of(model: type[BaseModel], above: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """Give the models that are fields of a model, each with its key, and the fields of these."""
    for name, field in model.model_fields.items():
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield f"{above}{name}", kind
                yield from _parts_of(kind, f"{above}{name}.")


def implementations() -> str:
    """Write every implementation with what it runs and its tunables."""
    parts = [
        "# Implementations\n",
        "`spmark doctor` says which of these can run on a machine, and why the others cannot. The README in each "
        "folder below `impls/` says how a system works and where it deviates from its paper.\n",
    ]
    made = {name: create(name) for name in (*IMPLEMENTATIONS, *OTHERS)}
    overview = [[f"[`{name}`](#{name})", *_reach(one), _first(type(one))] for name, one in made.items()]
    parts.append(table(("name", "devices", "operators", "what it is"), overview))
    for name, one in made.items():
        devices, operators = _reach(one)
        parts += [f"## {name}\n", f"{_first(type(one))} Operators: {operators}. Devices: {devices}.\n"]
        rows = [[f"`{field}`", text, f"`{getattr(one, field)!s}`"] for field, text in _tunables(type(one)).items()]
        parts.append(table(("tunable", "meaning", "default"), rows) if rows else "")
    return "\n".join(parts)


def sweeps() -> str:
    """Write every sweep of the package."""
    rows = []
    for name in sorted(packaged_sweeps()):
        sweep = Sweep.load(name)
        dtypes = ", ".join(str(dtype) for dtype in sweep.dtypes)
        matrices = str(len(sweep.matrices))
        rows.append([f"`{name}`", sweep.title, sweep.paper, sweep.figure, ", ".join(sweep.ops), matrices, dtypes])
    head = ("name", "what", "paper", "figure", "operators", "matrices", "dtypes")
    text = "`spmark run NAME` runs one of these. [Figures of the papers](figures.md) has them by paper and figure."
    return f"# Sweeps\n\n{text}\n\n" + table(head, rows)


def figures() -> str:
    """Write, paper by paper, which command measures what a figure or a table shows."""
    parts = [
        "# Figures of the papers\n",
        "`spmark reproduce PAPER` runs all sweeps of a paper within a budget of time, the most important cases first. "
        "This page is for one figure. The command measures what the figure shows and leaves records in `results/NAME`; "
        "`spmark report results/NAME --paper PAPER` draws the figure beside the numbers that the paper printed.\n",
        f"The last column says of which sweeps a checkout has our records of an H200: `spmark report {FIGURES}/NAME "
        "--paper PAPER` draws these without a GPU.\n",
    ]
    packaged = {name: Sweep.load(name) for name in packaged_sweeps()}
    for paper in read_papers(ALL):
        steps = {step.sweep for step in paper.steps}
        named = re.compile(paper.name.replace("_", "."), re.IGNORECASE)
        rows = []
        for name, sweep in packaged.items():
            ours = named.search(sweep.paper) is not None
            if ours or name in steps:
                records = "yes" if (ROOT / FIGURES / name).is_dir() else ""
                shown = numbered(sweep.figure) if ours else []
                rows += [[one, sweep.title, f"`spmark run {name}`", records] for one in shown or ["no single figure"]]
        rows.sort(key=lambda row: _natural(row[0]))
        if paper.study:
            moved = f"cost models that move from {paper.study.source} to {', '.join(paper.study.targets)}"
            rows.append(["several", moved, f"`spmark reproduce {paper.name}`", ""])
        parts.append(f"## {paper.title}\n\n{paper.citation}. PAPER is `{paper.name}`.\n")
        parts.append(table(("figure", "what is measured", "command", "H200"), rows))
    return "\n".join(parts)


def numbered(figure: str) -> list[str]:
    """Give each figure, table and section that a sweep says it reproduces."""
    found = NUMBERED.findall(figure)
    return [f"{kind} {number}" for kind, numbers in found for number in re.findall(r"[0-9]+(?:\.[0-9]+)?", numbers)]


def examples() -> str:
    """Write every script and notebook of `examples`, with what each shows first."""
    scripts = {file.name: file.read_text(encoding="utf-8") for file in sorted(EXAMPLES.glob("*.py"))}
    told = {name: ast.get_docstring(ast.parse(text)) or "" for name, text in scripts.items()}
    parts = [
        "# Examples\n",
        "The folder `examples` of a checkout holds these files. The test suite runs every command below as it stands, "
        "without a GPU; `profile_plan.py` and `search_spread.py` alone are made for one.\n",
    ]
    notebooks = {file.name: _notebook(file) for file in sorted(EXAMPLES.glob("*.ipynb"))}
    first = {name: text.partition("\n")[0] for name, text in {**told, **notebooks}.items()}
    parts.append(table(("example", "what it does"), [(f"[{n}](#{_anchor(n)})", text) for n, text in first.items()]))
    for name, text in told.items():
        code = scripts[name].partition('"""\n')[2].strip()
        parts.append(f"## {name}\n\n{text}\n\n```python\n{code}\n```\n")
    parts += [f"## {name}\n\n{text}" for name, text in notebooks.items()]
    return "\n".join(parts)


def _notebook(file: Path) -> str:
    """Write the cells of a notebook, its heading as a sentence and the others one level lower."""
    parts = []
    for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "code":
            parts.append(f"```python\n{text}\n```\n")
        else:
            parts.append(re.sub(r"^#(#+ )", r"##\1", re.sub(r"^# (.*)", r"\1.", text)) + "\n")
    return "\n".join(parts)


def _natural(figure: str) -> tuple[int, float]:
    """Give what sorts figures before tables and sections, and Figure 9 before Figure 10."""
    kind, _, number = figure.partition(" ")
    kinds = ("Figure", "Table", "Section")
    return (kinds.index(kind), float(number)) if kind in kinds else (len(kinds), 0)


def _anchor(heading: str) -> str:
    """Give the anchor that MkDocs gives a heading."""
    return re.sub(r"[^\w-]", "", heading).lower()


def _model(model: type[BaseModel], title: str) -> str:
    rows = [
        [f"`{field.alias or name}`", _type(field.annotation), field.description or "", _value(field)]
        for name, field in model.model_fields.items()
    ]
    return f"## {title}\n\n{_first(model)}\n\n" + table(("key", "type", "meaning", "default"), rows)


def _tunables(kind: type[Any]) -> Mapping[str, str]:
    """Give the docstrings of a dataclass's fields, those of its bases first."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if not base.__module__.startswith("spmark."):
            continue
        body = ast.parse(inspect.cleandoc("\n" + inspect.getsource(base))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, after in zip(body.body, [*body.body[1:], None], strict=True):
            if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
                continue
            if "ClassVar" in ast.unparse(field.annotation):
                continue
            said = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            found[field.target.id] = str(after.value.value) if said else ""
    return {name: text for name, text in found.items() if name in getattr(kind, "__dataclass_fields__", {})}


def _reach(made: Any) -> tuple[str, str]:
    """Give the devices and the operators of an implementation."""
    return ", ".join(sorted(map(str, made.devices))), ", ".join(sorted(map(str, made.ops)))


def _first(kind: type[Any]) -> str:
    """Give the first paragraph of a docstring."""
    return _plain((inspect.getdoc(kind) or "").split("\n\n")[0])


def _names(parameter: Any) -> str:
    names = parameter.opts if parameter.param_type_name == "option" else [parameter.name.upper()]
    return ", ".join(f"`{name}`" for name in [*names, *parameter.secondary_opts])


def _default(parameter: Any) -> str:
    default = parameter.default
    if parameter.required:
        return "required"
    return "" if default in (None, "", (), [], False) or callable(default) else f"`{default}`"


def _value(field: Any) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=False)
    if field.default_factory or default in (None, "", (), [], {}):
        return ""
    return f"`{', '.join(map(str, default)) if isinstance(default, tuple) else default}`"


def _type(annotation: Any) -> str:
    """Spell a type without its modules."""
    text: str = annotation.__name__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)
    text = re.sub(r"Annotated\[([\w.]+), .*?\)\]", r"\1", text)
    return f"`{re.sub(r'[A-Za-z_]+[.]', '', text)}`"


def _plain(text: str) -> str:
    """Write what a terminal shows in bold, and names of the code, as Markdown has them."""
    text = re.sub(r"\[/?(bold|dim|italic)\]", "`", text)
    return re.sub(r"``([^`]+)``", r"`\1`", " ".join(text.split()))


def _cell(text: str) -> str:
    return " ".join(_plain(text).replace("|", "\\|").split())
