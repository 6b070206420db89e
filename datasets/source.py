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

from spmark.datasets.origins import find_origin
from spmark.impls.core.errors import DatasetError, MatrixError
from spmark.impls.core.machine import positive_number
from spmark.impls.core.problem import MAX_NNZ, canonical_rows
from spmark.records.schema import MatrixKind

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
    valued: ClassVar[bool] = True
    """Its matrices may have values of their own; else those of a mirror's copy do not count."""

    def names(self, cache: Cache) -> Sequence[str]:
        """List the matrices of the source; empty where names are paths or labels."""
        return ()

    def facts(self, name: str) -> Facts | None:
        """Give the counts that are known before loading, or None: by default those of the list of origins."""
        origin = find_origin(self.name, name)
        return origin.facts if origin is not None else None

    def likely(self, name: str) -> Facts | None:
        """Give counts for estimates, which loading does not check: by default those of `facts`."""
        return self.facts(name)

    def relations(self, name: str, rows: int, cols: int) -> int:
        """Give the number of relations that stand side by side in a loaded matrix, 0 for any other matrix."""
        return 0

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
    """Sort a list of (row, column) pairs into a CSR. O(n log n) time.

    Parameters
    ----------
    shape : tuple of int
        (I, K).
    rows, cols : (n,) integers
        In any order.
    values : (n,) real or None
    kind : MatrixKind
    merge : bool
        Repeated pairs become one entry, whose value is their sum; else a repeated pair is an error. Integers become
        float64.
    where : str
        Named in errors.

    Raises
    ------
    MatrixError
        A row or column is out of range, a pair is repeated, or there are more pairs than an int32 can count.
    DatasetError
        There are more rows and columns than the ceiling allows.
    """
    from scipy import sparse

    num_rows, num_cols = shape
    check_shape(where, num_rows, num_cols, rows.size)
    for axis, index, length in (("rows", rows, num_rows), ("columns", cols, num_cols)):
        if index.size and (int(index.min()) < 0 or int(index.max()) >= length):
            at = int(np.flatnonzero((index < 0) | (index >= length))[0])
            raise MatrixError(f"{where}: expected {axis} in [0, {length}), found {index[at]} in entry {at}")
    data = np.ones(rows.size, np.float32) if values is None else values
    csr = canonical_rows(sparse.coo_array((data, (rows, cols)), shape=shape), where)
    if csr.nnz < rows.size and not merge:
        keys = np.sort(rows.astype(np.int64) * num_cols + cols)
        row, col = divmod(int(keys[:-1][keys[1:] == keys[:-1]][0]), num_cols)
        raise MatrixError(f"{where}: expected every entry once, found a duplicate in row {row}: column {col}")
    return RawMatrix(shape, csr.indptr, csr.indices, None if values is None else csr.data, kind)


VARIABLE = "SPMARK_MAX_MATRIX_GIB"
DEFAULT_GIB = 8.0
_BYTES_OF_A_LINE = 16
"""Bytes for each row or column while a matrix is read, sorted and counted, whether or not it has entries."""


def ceiling_bytes() -> int:
    """Give the ceiling that the environment sets.

    Raises
    ------
    DatasetError
        The variable does not hold a positive number.
    """
    return int(positive_number(VARIABLE, DEFAULT_GIB, "GiB", DatasetError) * (1 << 30))


def check_bytes(where: str, what: str, claimed: int) -> None:
    """Refuse a claim of more memory or disk than the ceiling.

    Raises
    ------
    DatasetError
        Says how much is claimed, and which variable raises the ceiling.
    """
    ceiling = ceiling_bytes()
    if claimed > ceiling:
        raise DatasetError(
            f"{where}: expected {what} to take at most {ceiling / (1 << 30):.3g} GiB, found a claim of "
            f"{claimed / (1 << 30):.3g} GiB; if the claim is right and this machine has so much, set {VARIABLE}"
        )


def check_shape(where: str, num_rows: int, num_cols: int, nnz: int = 0) -> None:
    """Refuse sizes that int32 cannot count, and more rows and columns than the ceiling allows.

    Entries have to stand in the file, so each reader compares their number with the file's bytes. Rows and columns may
    be empty.

    Raises
    ------
    MatrixError
        A size is beyond 2^31 - 1.
    DatasetError
        A size is negative, or rows and columns are beyond the ceiling.
    """
    if min(num_rows, num_cols, nnz) < 0:
        raise DatasetError(f"{where}: expected sizes of 0 and more, found {num_rows} x {num_cols} with {nnz} entries")
    if max(num_rows, num_cols, nnz) > MAX_NNZ:
        raise MatrixError(
            f"{where}: expected at most 2^31 - 1 rows, columns and non-zeros (indices are int32), "
            f"found {num_rows} x {num_cols} with {nnz:,} entries"
        )
    check_bytes(where, f"{num_rows:,} rows and {num_cols:,} columns", _BYTES_OF_A_LINE * (num_rows + num_cols))
