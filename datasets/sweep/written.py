"""Matrices that are written in one word: ``source/name``, or a file by its ending, with ``@AT`` for the transpose."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from spmark.datasets.sources.table import FILES, file_ending, source_names
from spmark.impls.core.choices import none_of
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.files import is_file
from spmark.impls.core.record import Orientation

_TRANSPOSED = f"@{Orientation.TRANSPOSED}"
_FOLDERS = frozenset({".", "..", "~"})
"""What a path may begin with and a source is never called."""
_EDGES = (
    "n = numpy.loadtxt({file!r}, int, usecols=(0, 1), ndmin=2{comma}).T; "
    "a = scipy.sparse.coo_array((numpy.ones(n.shape[1]), tuple(n)), (n.max() + 1, n.max() + 1))"
)
_CONVERTED: Mapping[str, str] = {
    **dict.fromkeys((".txt", ".tsv", ".el", ".edges"), _EDGES.replace("{comma}", "")),
    ".csv": _EDGES.replace("{comma}", ", delimiter=','"),
    ".npy": "a = scipy.sparse.coo_array(numpy.load({file!r}))",
    ".pt": "t = torch.load({file!r}, weights_only=True).to_sparse_coo().coalesce(); "
    "a = scipy.sparse.coo_array((t.values().numpy(), t.indices().numpy()), t.shape)",
}
"""What gives a matrix of SciPy, by the ending of a file that states no shape, or that would have to be unpickled."""


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
    converting = next((how for end, how in _CONVERTED.items() if bare.lower().endswith(end)), "")
    if not first or not rest or first in _FOLDERS or (first not in known and (found or converting)):
        raise DatasetError(
            f"expected a matrix as source/name, or a file that ends in {', '.join(FILES)}; found {text!r}; "
            f"{_lines(converting, bare)}spmark list datasets says what there is"
        )
    if first not in known:
        raise DatasetError(none_of("a source", first, known))
    return {"source": first, "name": rest, "orientation": orientation}


def _lines(converting: str, name: str) -> str:
    """Give the lines of Python that write a file which is read, where they are known."""
    if not converting:
        return ""
    modules = "numpy, scipy.sparse" + ", torch" * ("torch" in converting)
    return (
        f"in Python, these lines write one of its matrix:\nimport {modules}; {converting.format(file=name)}\n"
        f"scipy.sparse.save_npz({str(Path(name).with_suffix('.npz'))!r}, a)\n"
    )
