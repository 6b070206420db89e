"""Which store of a plan serves each non-zero: blocks, buckets of padded rows, rows as they come, or literals in code.

A plan's composition is a list of stores. Each non-zero of A has exactly one, so that the stores' counts add up to nnz.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import BuildError
from spmark.impls.core.interfaces import Config


class StoreKind(StrEnum):
    """What a kernel reads non-zeros from."""

    BLOCK = "block"
    """Dense rectangles, zeros kept."""
    BUCKET = "bucket"
    """Rows, or pieces of rows, padded to one width."""
    ROW = "row"
    """Rows, or runs of non-zeros, without padding."""
    LITERAL = "literal"
    """Values in the code itself."""


class Held(NamedTuple):
    """Some non-zeros in a store; several of one name are one store."""

    kind: StoreKind
    name: str
    stored: int
    """Elements, padding included."""
    places: NDArray[np.integer] | None = None
    """(n,) positions of the non-zeros in A's CSR order; None for all."""


@dataclass(frozen=True)
class Store:
    """One store of a composition."""

    kind: StoreKind
    name: str
    nnz: int
    stored: int
    """Elements, padding included."""


@dataclass(frozen=True, eq=False)
class Stores:
    """The stores of a plan, and the store of each non-zero."""

    parts: tuple[Store, ...]
    store_of: NDArray[np.int16]
    """(nnz,) number of the store of each non-zero, in A's CSR order."""

    @classmethod
    def of(cls, nnz: int, held: Iterable[Held]) -> Stores:
        """Add up what is held.

        Parameters
        ----------
        nnz : int
        held : iterable of Held
            In the order in which legends name them; kinds are put together in the order of `StoreKind`.

        Returns
        -------
        Stores
            Without stores that hold nothing. O(nnz).

        Raises
        ------
        BuildError
            A non-zero is in no store, or in several; says how many are.
        """
        of_name: dict[tuple[StoreKind, str], list[Held]] = {}
        for one in held:
            if one.stored or (nnz if one.places is None else one.places.size):
                of_name.setdefault((one.kind, one.name), []).append(one)
        kinds, parts = list(StoreKind), list[Store]()
        store_of, placed = np.full(nnz, -1, np.int16), 0
        for (kind, name), pieces in sorted(of_name.items(), key=lambda item: kinds.index(item[0][0])):
            for one in pieces:
                store_of[slice(None) if one.places is None else one.places] = len(parts)
            count = sum(nnz if one.places is None else one.places.size for one in pieces)
            parts.append(Store(kind, name, count, sum(one.stored for one in pieces)))
            placed += count
        none = int(np.count_nonzero(store_of < 0))
        again = placed - (nnz - none)
        if none or again:
            raise BuildError(
                f"expected each of {nnz:,} non-zeros in one store, found {none:,} in none and {again:,} twice"
            )
        return cls(tuple(parts), store_of)

    @property
    def nnz(self) -> int:
        """Non-zeros of all stores."""
        return sum(part.nnz for part in self.parts)

    @property
    def stored(self) -> int:
        """Elements of all stores, padding included."""
        return sum(part.stored for part in self.parts)

    @property
    def padding(self) -> float:
        """Padded elements over non-zeros; 0 without non-zeros."""
        return self.stored / self.nnz - 1 if self.nnz else 0.0


@dataclass(frozen=True)
class Forecast:
    """What an implementation chooses without measuring, for a device that may be absent."""

    config: Config
    by: str
    """What chose, such as ``the paper's rule for k``."""
    predicted_s: float | None = None
    """Seconds of a run by the implementation's cost model; None where the model gives an order alone."""
