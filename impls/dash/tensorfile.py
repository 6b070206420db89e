"""Arrays by name in a safetensors file, with texts in its header; nothing in such a file is executed.

Models and checkpoints of training are such files. A file appears whole or not at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import BuildError
from spmark.impls.core.files import whole
from spmark.impls.core.untrusted import reading
from spmark.impls.dash.withtorch import load

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
    library = load("safetensors.numpy", "safetensors")
    content = library.save({name: np.ascontiguousarray(array) for name, array in tensors.items()}, dict(texts))
    try:
        with whole(path) as part:
            part.write_bytes(content)
    except OSError as error:
        raise BuildError(f"{path}: the file cannot be written: {error.strerror}") from error


def read(path: Path) -> tuple[Tensors, dict[str, str]]:
    """Read a file's arrays and texts.

    Raises
    ------
    BuildError
        The file is missing or damaged.
    UnsupportedError
        safetensors is not installed.
    """
    library = load("safetensors", "safetensors")
    with reading(path, "a safetensors file", BuildError), library.safe_open(path, framework="numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})


def digest_of(tensors: Mapping[str, NDArray[Any]]) -> str:
    """Give the SHA-256 over names, types, shapes and contents, whatever the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}\0".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def part_of(tensors: Mapping[str, NDArray[Any]], prefix: str) -> Tensors:
    """Give the arrays whose names begin with a prefix and a point, by the rest of their names."""
    return {name.removeprefix(f"{prefix}."): one for name, one in tensors.items() if name.startswith(f"{prefix}.")}
