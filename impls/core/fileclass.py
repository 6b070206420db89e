"""Implementations in files, as a person writes them: ``./mine.py:MyKernel``, or a CUDA file, ``./mine.cu``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from spmark.impls.core.files import at_home

_WRITTEN = re.compile(r"(?:(?P<cuda>.+\.cu)|(?P<python>.+\.py):(?P<label>[A-Za-z_]\w*))")


@dataclass(frozen=True)
class FileClass:
    """A class in a Python file, or the kernel that a CUDA file declares."""

    file: Path
    label: str
    """The name of the class; empty for a CUDA file."""

    def __str__(self) -> str:
        return f"{self.file}:{self.label}" if self.label else str(self.file)


def is_file_class(text: str) -> bool:
    """Tell whether a text names an implementation by its file."""
    return _WRITTEN.fullmatch(text) is not None


def parse_file_class(text: str, folder: Path | None = None) -> FileClass:
    """Give the file and the class that a text names, with an absolute path.

    Parameters
    ----------
    text : str
        For which `is_file_class` holds.
    folder : Path, optional
        Where a relative path begins; by default the current folder.

    Raises
    ------
    ValueError
        The text has another form.
    """
    found = _WRITTEN.fullmatch(text)
    if found is None:
        raise ValueError(f"expected a file such as ./mine.py:MyKernel or ./mine.cu, found {text!r}")
    return FileClass(
        ((folder or Path.cwd()) / at_home(found["cuda"] or found["python"])).resolve(), found["label"] or ""
    )
