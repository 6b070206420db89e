"""Matrices that are written in one word: ``source/name``, or a file by its ending, with ``@AT`` for the transpose."""

from __future__ import annotations

from pathlib import Path

from spmark.datasets.sources.table import FILES, file_ending, source_names
from spmark.impls.core.choices import none_of
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.files import is_file
from spmark.impls.core.record import Orientation

_TRANSPOSED = f"@{Orientation.TRANSPOSED}"
_FOLDERS = frozenset({".", "..", "~"})
"""What a path may begin with and a source is never called."""


def parse_matrix(text: str, folder: Path = Path()) -> dict[str, str]:
    """Give the ``source``, ``name`` and ``orientation`` of a matrix, as a sweep's mapping has them.

    Parameters
    ----------
    text : str
        A file need not exist. A text that begins with a source's name means a matrix of that source, unless a file of
        this path exists.
    folder : Path
        Where a relative path begins.

    Raises
    ------
    DatasetError
        The text has neither form, or the source does not exist; lists what exists.
    """
    bare = text.removesuffix(_TRANSPOSED)
    orientation = str(Orientation.A if bare == text else Orientation.TRANSPOSED)
    first, _, rest = bare.partition("/")
    known = source_names()
    ending, found = file_ending(bare), is_file(folder / bare)
    if ending and (found or first not in known):
        return {"source": FILES[ending], "name": bare, "orientation": orientation}
    if not first or not rest or first in _FOLDERS or (found and first not in known):
        raise DatasetError(
            f"expected a matrix as source/name, or a file that ends in {', '.join(FILES)}; found {text!r}; "
            "spmark list datasets says what there is"
        )
    if first not in known:
        raise DatasetError(none_of("a source", first, known))
    return {"source": first, "name": rest, "orientation": orientation}
