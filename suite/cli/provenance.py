"""``spmark show RECORDS``: the commands that repeat a file of records."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from rich.markup import escape

from spmark.suite.cli.console import answer, console, say


def show_provenance(path: Path, as_json: bool) -> None:
    """Print a shell script for each run: comments that describe the run, then commands, then the differences to expect.

    Raises
    ------
    RecordError
        There are no records, or a file cannot be read.
    """
    from spmark.impls.core.names import printable
    from spmark.suite.run.provenance import read_batches, recipe

    recipes_of = {file: [recipe(batch) for batch in batches] for file, batches in read_batches(path).items()}
    if as_json:
        answer([{"file": file} | asdict(made) for file, recipes in recipes_of.items() for made in recipes])
        return
    screen = console(as_json)
    here = Path.cwd()
    for file, recipes in recipes_of.items():
        name = file.relative_to(here) if file.is_relative_to(here) else file
        for made in recipes:
            lines = [f"# {printable(str(name))}", *(f"# {line}" for line in made.about), *made.commands]
            for line in (*lines, "# Not exactly as it was:", *(f"# - {line}" for line in made.limits), ""):
                say(screen, escape(line))
