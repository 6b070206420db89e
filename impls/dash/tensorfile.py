"""Arrays by name in a safetensors file, with texts in its header; nothing in such a file is executed.

Models and checkpoints of training are such files. A file appears whole or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import BuildError, needed
from spmark.impls.core.files import written
from spmark.impls.core.untrusted import reading

Tensors = dict[str, NDArray[Any]]


def write(path: Path, tensors: Mapping[str, NDArray[Any]], texts: Mapping[str, str]) -> None:
    """Write a file.

    Raises
    ------
    BuildError
        The file cannot be written.
    UnsupportedError
        safetensors is not installed.
    """
    library = needed("safetensors.numpy", "safetensors", "dash")
    content = library.save({name: np.ascontiguousarray(array) for name, array in tensors.items()}, dict(texts))
    with written(path, BuildError) as part:
        part.write_bytes(content)


def read(path: Path) -> tuple[Tensors, dict[str, str]]:
    """Read a file's arrays and texts.

    Raises
    ------
    BuildError
        The file is missing or damaged.
    UnsupportedError
        safetensors is not installed.
    """
    library = needed("safetensors", "safetensors", "dash")
    with reading(path, "a safetensors file", BuildError), library.safe_open(path, framework="numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})


def part_of(tensors: Mapping[str, NDArray[Any]], prefix: str) -> Tensors:
    """Give the arrays whose names begin with a prefix and a point, by the rest of their names."""
    return {name.removeprefix(f"{prefix}."): one for name, one in tensors.items() if name.startswith(f"{prefix}.")}
