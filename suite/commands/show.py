"""``spmark show``: what one matrix looks like, as numbers on the screen and as a page with its figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from spmark.impls.core.errors import DatasetError
from spmark.impls.core.plainyaml import parse_yaml
from spmark.suite.commands.console import answer, console, say, table

if TYPE_CHECKING:
    from spmark.datasets.sweep import MatrixSpec

_FILES = {
    ".npz": "npz",
    ".smtx": "smtx",
    ".mtx": "matrix_market",
    ".mtx.gz": "matrix_market",
    ".tar.gz": "matrix_market",
}
_TRANSPOSED = "@AT"


def show_matrix(matrix: str, arguments: Sequence[str], out: Path, as_json: bool) -> None:
    """Print the statistics and write the page.

    Raises
    ------
    DatasetError
        ``matrix`` names nothing, an argument is none, or the matrix cannot be loaded.
    RecordError
        ``out`` cannot be written.
    """
    import numpy as np

    from spmark.datasets.cache import Cache
    from spmark.datasets.load import load_matrix
    from spmark.datasets.statistics import statistics
    from spmark.impls.core.names import path_component
    from spmark.report.page import write_site
    from spmark.report.spy import matrix_report, spy_counts

    screen = console(as_json)
    spec = matrix_spec(matrix, arguments)
    with screen.status(escape(spec.id)):
        loaded = load_matrix(spec, Cache.default(), seed=0)
        csr = loaded.csr
        known: dict[str, Any] = {"kind": str(loaded.kind), **asdict(statistics(csr))}
        counts = spy_counts(csr.shape, csr.indptr, csr.indices)
        lengths = csr.row_lengths, np.bincount(csr.indices, minlength=csr.num_cols)
        facts = [(name.replace("_", " "), _text(value)) for name, value in known.items()]
        place = out / path_component("-".join(filter(None, spec.id.split("/"))))
        page = write_site(matrix_report(spec.id, facts, csr.shape, counts, lengths), place)
    if as_json:
        answer({"matrix": spec.id, "statistics": known, "page": page})
        return
    screen.print(table(spec.id, [{"statistic": name, "value": text} for name, text in facts], plain=True))
    say(screen, escape(str(page)))


def matrix_spec(matrix: str, arguments: Sequence[str]) -> MatrixSpec:
    """Give what a sweep would say of a matrix: a file by its ending, else ``source/name``, ``@AT`` for the transpose.

    Raises
    ------
    DatasetError
        It is neither, or the source does not exist; says what there is.
    """
    from pydantic import ValidationError

    from spmark.datasets.sources.table import find_source
    from spmark.datasets.sweep import MatrixSpec
    from spmark.impls.core.record import Orientation

    bare = matrix.removesuffix(_TRANSPOSED)
    source = next((source for ending, source in _FILES.items() if bare.endswith(ending) and Path(bare).is_file()), "")
    name = bare
    if not source:
        source, _, name = bare.partition("/")
        if not source or not name:
            raise DatasetError(
                f"expected a matrix as source/name, or a file that ends in {', '.join(_FILES)}; found {matrix!r}; "
                "spmark list datasets says what there is"
            )
        find_source(source)
    orientation = Orientation.A if bare == matrix else Orientation.TRANSPOSED
    try:
        return MatrixSpec(source=source, name=name, args=dict(map(_argument, arguments)), orientation=orientation)
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
