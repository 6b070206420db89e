"""``spmark show``: one matrix as numbers on the screen and as a page with figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from spmark.impls.core.errors import DatasetError
from spmark.impls.core.plainyaml import parse_yaml
from spmark.suite.cli.console import answer, console, say, table, working

if TYPE_CHECKING:
    from spmark.datasets.sweep.model import MatrixSpec


def show_matrix(matrix: str, arguments: Sequence[str], out: Path, as_json: bool) -> None:
    """Print the statistics and write the page.

    Raises
    ------
    DatasetError
        ``matrix`` names no matrix, an argument is not key=value, or the matrix cannot be loaded.
    RecordError
        ``out`` cannot be written.
    """
    import numpy as np

    from spmark.datasets.loading_child import load_in_child
    from spmark.datasets.statistics import statistics
    from spmark.impls.core.names import path_component
    from spmark.report.figures.composition import spy_counts
    from spmark.report.site.files import write_site
    from spmark.report.site.matrix import matrix_report

    screen = console(as_json)
    spec = matrix_spec(matrix, arguments)
    with working(screen, spec.id):
        loaded = load_in_child(spec, seed=0)
        csr = loaded.csr
        known: dict[str, Any] = {"kind": str(loaded.source_kind), **asdict(statistics(csr))}
        counts = spy_counts(csr.shape, csr.indptr, csr.indices)
        lengths = csr.row_lengths, np.bincount(csr.indices, minlength=csr.num_cols)
        facts = [(name.replace("_", " "), _text(value)) for name, value in known.items() if value is not None]
        place = out / path_component("-".join(filter(None, spec.id.split("/"))))
        page = write_site(matrix_report(spec.id, facts, csr.shape, counts, lengths), place)
    if as_json:
        answer({"matrix": spec.id, "statistics": known, "page": page})
        return
    screen.print(table(spec.id, [{"statistic": name, "value": text} for name, text in facts], plain=True))
    say(screen, escape(str(page)))


def matrix_spec(matrix: str, arguments: Sequence[str]) -> MatrixSpec:
    """Give the entry of a sweep for a matrix that is written in a word (`spmark.datasets.sweep.reading`).

    Raises
    ------
    DatasetError
        The word is neither a file nor a matrix of a source, or the source does not exist; the message says what there
        is.
    """
    from pydantic import ValidationError

    from spmark.datasets.sweep.model import MatrixSpec
    from spmark.datasets.sweep.reading import parse_matrix

    said = parse_matrix(matrix)
    try:
        return MatrixSpec.model_validate(said | {"args": dict(map(_argument, arguments))})
    except ValidationError as error:
        raise DatasetError(f"{matrix}: {error.errors()[0]['msg']}") from error


def _argument(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise DatasetError(f"expected an argument as key=value, found {text!r}")
    return key, parse_yaml(value, f"argument {text!r}: the value after '='", DatasetError)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)
