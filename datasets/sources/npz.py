"""A SciPy CSR in an npz file, by path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from spmark.datasets.cache import Cache
from spmark.datasets.npzfile import read_npz
from spmark.datasets.source import Args, Facts, RawMatrix, file_argument


class Npz:
    """Files that ``scipy.sparse.save_npz`` wrote from a CSR; the name is the path, or a label beside ``path``."""

    name: ClassVar[str] = "npz"
    title: ClassVar[str] = "SciPy CSR files"
    licence: ClassVar[str] = "the file's"
    citation: ClassVar[str] = ""
    url: ClassVar[str] = ""
    network: ClassVar[bool] = False
    cached: ClassVar[bool] = False

    def names(self, cache: Cache) -> Sequence[str]:
        """List nothing: names are paths."""
        return ()

    def facts(self, name: str) -> Facts | None:
        """Know nothing."""
        return None

    def load(self, name: str, args: Args, cache: Cache) -> RawMatrix:
        """Read the file; it must not hold pickled objects."""
        return read_npz(file_argument("npz", name, args))
