"""A Matrix Market file by path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from spmark.datasets.cache import Cache
from spmark.datasets.mtxfile import read_mtx
from spmark.datasets.source import Args, Facts, RawMatrix, file_argument


class MatrixMarket:
    """``.mtx``, ``.mtx.gz`` and ``.tar.gz`` files; the name is the path, or a label beside ``path``."""

    name: ClassVar[str] = "matrix_market"
    title: ClassVar[str] = "Matrix Market files"
    licence: ClassVar[str] = "the file's"
    citation: ClassVar[str] = ""
    url: ClassVar[str] = "https://math.nist.gov/MatrixMarket/formats.html"
    network: ClassVar[bool] = False
    cached: ClassVar[bool] = False

    def names(self, cache: Cache) -> Sequence[str]:
        """List nothing: names are paths."""
        return ()

    def facts(self, name: str) -> Facts | None:
        """Know nothing."""
        return None

    def load(self, name: str, args: Args, cache: Cache) -> RawMatrix:
        """Read the file."""
        return read_mtx(file_argument("matrix_market", name, args))
