"""Which store of a plan serves each non-zero: blocks, buckets of padded rows, rows as they come, or literals in code.

A plan's composition is a list of stores. Each non-zero of A has exactly one, so that the stores' counts add up to nnz.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import BuildError
from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Problem


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
    places: NDArray[np.integer]
    """(n,) positions of the non-zeros in A's CSR order."""


@dataclass(frozen=True)
class Store:
    """One store of a composition."""

    kind: StoreKind
    name: str
    nnz: int
    stored: int
    """Elements, padding included."""
    predicted_s: float | None = None
    """Seconds of a run that a cost model expects this store to take; None where no model prices the store."""


@dataclass(frozen=True, eq=False)
class Stores:
    """The stores of a plan, and the store of each non-zero."""

    parts: tuple[Store, ...]
    store_of: NDArray[np.int16]
    """(nnz,) number of the store of each non-zero, in A's CSR order."""

    @classmethod
    def of(cls, nnz: int, held: Iterable[Held], seconds: NDArray[np.float64] | None = None) -> Stores:
        """Add up what is held.

        Parameters
        ----------
        nnz : int
        held : iterable of Held
            In the order in which legends name them; kinds are put together in the order of `StoreKind`.
        seconds : (nnz,) float64, optional
            Seconds that a cost model expects of each non-zero.

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
            if one.stored or one.places.size:
                of_name.setdefault((one.kind, one.name), []).append(one)
        kinds = list(StoreKind)
        names = sorted(of_name, key=lambda key: kinds.index(key[0]))
        store_of, placed = np.full(nnz, -1, np.int16), 0
        for number, key in enumerate(names):
            for one in of_name[key]:
                store_of[one.places] = number
                placed += one.places.size
        none = int(np.count_nonzero(store_of < 0))
        again = placed - (nnz - none)
        if none or again:
            raise BuildError(
                f"expected each of {nnz:,} non-zeros in one store, found {none:,} in none and {again:,} twice"
            )
        counts = np.bincount(store_of, minlength=len(names))
        spent = None if seconds is None else np.bincount(store_of, seconds, minlength=len(names))
        parts = [
            Store(
                *key,
                nnz=int(counts[number]),
                stored=sum(one.stored for one in of_name[key]),
                predicted_s=None if spent is None else float(spent[number]),
            )
            for number, key in enumerate(names)
        ]
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

    def by_kind(self) -> Mapping[StoreKind, int]:
        """Count the non-zeros of each kind that serves any."""
        counts: dict[StoreKind, int] = {}
        for part in self.parts:
            counts[part.kind] = counts.get(part.kind, 0) + part.nnz
        return counts


@dataclass(frozen=True, eq=False)
class Forecast:
    """What an implementation chooses for a device that may be absent; nothing is measured."""

    config: Config
    stores: Stores
    by: str
    """What chose, such as ``the paper's rule for k``."""
    predicted_s: float | None = None
    """Seconds of a run by the implementation's cost model; None where the model gives an order alone."""


class Composing(Protocol):
    """Tells the stores of an implementation's plans on the host (`spmark.impls.table.COMPOSITIONS`)."""

    def stores(self, how: Any, problem: Problem, device: DeviceSpec, config: Config) -> Stores:
        """Convert as a plan of ``config`` does, and tell the stores.

        Parameters
        ----------
        how : Implementation
            With the tunables that were pinned.
        problem : Problem
        device : DeviceSpec
            What the plan was built for; the machine may lack it.
        config : mapping
            What the plan chose (`spmark.impls.core.interfaces.Plan.config`).

        Raises
        ------
        BuildError
            The config is of no plan of the implementation today; says what is missing.
        """
        ...


class Forecasting(Protocol):
    """Tells what an implementation chooses without measuring, for a device that may be absent.

    `spmark.impls.table.FORECASTS` lists who does.
    """

    def forecast(self, how: Any, problem: Problem, device: DeviceSpec, budget_s: float) -> Forecast:
        """Search, predict and convert on the host.

        Parameters
        ----------
        how : Implementation
        problem : Problem
            One that ``how`` supports on ``device``.
        device : DeviceSpec
        budget_s : float
            Seconds after which a search that can be cut short is cut short.

        Raises
        ------
        SpmarkError
            Nothing can be foreseen for this operator or dtype; says why.
        """
        ...
