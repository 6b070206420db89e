"""The contract of a source of matrices, and what all sources share: facts, raw matrices, edge lists to CSR.

A source reads or generates a matrix. `spmark.datasets.load` decides about mirror and cache, and checks the matrix.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from spmark.datasets.ceiling import check_shape
from spmark.impls.core.errors import DatasetError, MatrixError
from spmark.impls.core.record import MatrixKind

if TYPE_CHECKING:
    from spmark.datasets.cache import Cache

Args = Mapping[str, bool | int | float | str]
Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class Facts:
    """Counts that a publisher states of a matrix; loading checks them."""

    num_rows: int
    num_cols: int
    nnz: int


@dataclass(frozen=True, eq=False)
class RawMatrix:
    """A CSR as a source gives it, not yet checked: rows in order, columns increasing in each."""

    shape: tuple[int, int]
    """(I, K)."""
    indptr: NDArray[Any]
    """(I + 1,) integers."""
    indices: NDArray[Any]
    """(nnz,) integers."""
    values: NDArray[Any] | None
    """(nnz,) real, None where the source has a pattern only."""
    kind: MatrixKind

    @property
    def facts(self) -> Facts:
        """The counts of the matrix."""
        return Facts(int(self.shape[0]), int(self.shape[1]), int(self.indices.shape[0]))


class Source(ABC):
    """A collection of matrices, files or formulas; the defaults are those of a formula that takes any name."""

    name: ClassVar[str]
    """Key in sweeps."""
    title: ClassVar[str]
    licence: ClassVar[str] = "none needed (generated)"
    citation: ClassVar[str] = ""
    url: ClassVar[str] = ""
    network: ClassVar[bool] = False
    """Loading downloads, unless the local mirror has the matrix."""
    cached: ClassVar[bool] = False
    """Loaded matrices are kept in the cache, since reading or generating them takes long."""

    def names(self, cache: Cache) -> Sequence[str]:
        """List the matrices of the source; empty where names are paths or labels."""
        return ()

    def facts(self, name: str) -> Facts | None:
        """Give the counts that are known before loading, or None."""
        return None

    @abstractmethod
    def load(self, name: str, args: Args, cache: Cache) -> RawMatrix:
        """Read or generate a matrix.

        Raises
        ------
        DatasetError
            The matrix is missing, or cannot be fetched, verified or read; says where and what to do.
        MatrixError
            The file was read, but its matrix is illegal.
        """


def known(source: str, name: str, names: Iterable[str]) -> str:
    """Give ``name`` back if it is one of ``names``.

    Raises
    ------
    DatasetError
        The name is another; lists the nearest names.
    """
    known_names = list(names)
    if name in known_names:
        return name
    matches = get_close_matches(name, known_names, 5) or known_names[:12]
    raise DatasetError(f"{source}: expected one of its matrices, such as {', '.join(matches)}; found {name!r}")


def argument(where: str, args: Args, key: str, default: Number, within: tuple[Number, Number]) -> Number:
    """Read a numeric argument of ``default``'s type in the closed range ``within``.

    Raises
    ------
    DatasetError
        The argument has another type or is out of range.
    """
    value, (low, high) = args.get(key, default), within
    # An integer is compared as an integer: some are above the largest floating-point number.
    fits = isinstance(value, int) or (isinstance(value, float) and isinstance(default, float))
    if isinstance(value, bool | str) or not fits or not low <= value <= high:
        raise DatasetError(
            f"{where}: expected {key} to be {'an integer' if isinstance(default, int) else 'a number'} "
            f"in [{low}, {high}], found {value!r}"
        )
    return type(default)(value)


def only(where: str, args: Args, *keys: str) -> None:
    """Refuse arguments other than ``keys``.

    Raises
    ------
    DatasetError
        Names the unknown argument.
    """
    unknown = sorted(set(args) - set(keys))
    if unknown:
        raise DatasetError(
            f"{where}: expected arguments out of {', '.join(keys) or 'none'}, found {', '.join(unknown)}"
        )


def csr_from_edges(
    shape: tuple[int, int],
    rows: NDArray[Any],
    cols: NDArray[Any],
    values: NDArray[Any] | None,
    kind: MatrixKind,
    *,
    merge: bool,
    where: str,
) -> RawMatrix:
    """Sort a list of (row, column) pairs into a CSR. O(n log n) time, 8 bytes a pair of scratch (16 with values).

    Parameters
    ----------
    shape : tuple of int
        (I, K).
    rows, cols : (n,) integers
        In any order.
    values : (n,) real or None
    kind : MatrixKind
    merge : bool
        Repeated pairs become one entry, whose value is their sum, of integers in float64; else a repeated pair is an
        error.
    where : str
        Named in errors.

    Raises
    ------
    MatrixError
        A row or column is out of range, a pair is repeated, or there are more pairs than an int32 can count.
    DatasetError
        There are more rows and columns than the ceiling allows.
    """
    num_rows, num_cols = shape
    check_shape(where, num_rows, num_cols, rows.size)
    for axis, index, length in (("rows", rows, num_rows), ("columns", cols, num_cols)):
        if index.size and (int(index.min()) < 0 or int(index.max()) >= length):
            at = int(np.flatnonzero((index < 0) | (index >= length))[0])
            raise MatrixError(f"{where}: expected {axis} in [0, {length}), found {index[at]} in entry {at}")
    keys = rows.astype(np.int64)
    keys *= num_cols
    keys += cols
    if values is None:
        keys.sort()
    else:
        order = np.argsort(keys, kind="stable")
        keys, values = keys[order], values[order]
    same = np.flatnonzero(keys[1:] == keys[:-1])
    if same.size and merge:
        if values is not None:
            firsts = np.delete(np.arange(keys.size), same + 1)
            with np.errstate(over="ignore"):
                values = np.add.reduceat(values, firsts, dtype=np.float64 if values.dtype.kind in "iub" else None)
        keys = np.delete(keys, same)
    elif same.size:
        row, col = divmod(int(keys[same[0]]), num_cols)
        raise MatrixError(f"{where}: expected every entry once, found a duplicate in row {row}: column {col}")
    indptr = np.searchsorted(keys, np.arange(num_rows + 1, dtype=np.int64) * num_cols).astype(np.int32)
    keys %= num_cols
    return RawMatrix(shape, indptr, keys.astype(np.int32), values, kind)
