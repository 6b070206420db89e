"""Any matrix of the SuiteSparse Matrix Collection, by ``Group/Name``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from spmark.datasets.cache import Cache
from spmark.datasets.mtxfile import read_mtx
from spmark.datasets.source import Args, Facts, RawMatrix, only
from spmark.impls.core.errors import DatasetError

BASE_URL = "https://suitesparse-collection-website.herokuapp.com/MM/"


class SuiteSparse:
    """The collection's Matrix Market archives: symmetric storage expanded, explicit zeros kept in the pattern."""

    name: ClassVar[str] = "suitesparse"
    title: ClassVar[str] = "SuiteSparse Matrix Collection"
    licence: ClassVar[str] = "CC-BY 4.0"
    citation: ClassVar[str] = "Davis and Hu, The University of Florida sparse matrix collection, ACM TOMS 38(1), 2011"
    url: ClassVar[str] = "https://sparse.tamu.edu"
    network: ClassVar[bool] = True
    cached: ClassVar[bool] = True

    def names(self, cache: Cache) -> Sequence[str]:
        """List nothing: the collection's index has them."""
        return ()

    def facts(self, name: str) -> Facts | None:
        """Know nothing: the file's header is checked against its content."""
        return None

    def load(self, name: str, args: Args, cache: Cache) -> RawMatrix:
        """Fetch and read a matrix. Takes no arguments."""
        only(f"suitesparse/{name}", args)
        if not re.fullmatch(r"[\w.+-]*\w[\w.+-]*/[\w.+-]*\w[\w.+-]*", name, re.ASCII):
            raise DatasetError(f"suitesparse/{name}: expected Group/Name, such as SNAP/ca-GrQc, found {name!r}")
        return read_mtx(cache.fetch(f"{BASE_URL}{name}.tar.gz", f"suitesparse/{name}.tar.gz"))
