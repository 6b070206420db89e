"""One mixture of formats: a run of the search for every range of columns, and for every order of rows that pays.

Fang, Shen, Wang and Chen, "STile", SIGMOD 2024, section 3.1. The choice of the order of rows for blocks is our own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr
from spmark.impls.core.spans import offsets
from spmark.impls.formats.threads import cores
from spmark.impls.stile.greedy import Greedy, PickedTiles, Rules
from spmark.impls.stile.space import Formats, Shapes
from spmark.impls.stile.state import LIGHT
from spmark.impls.stile.windows import Once, Tiled, area, order_of

_MUCH_DENSER = 0.75
"""Groups of columns in another order of rows over groups in the present one: below this, a second search pays."""

_MUCH_CHEAPER = 0.5
"""Factor on the cost of light tiles while two orders of rows are tried: only blocks that cost less than this share keep
their non-zeros from the second order."""


class Piece(NamedTuple):
    """Non-zeros and their tiles."""

    where: NDArray[np.int64] | None
    """(n,) positions in CSR order, rising; None for all of the matrix."""
    picked: PickedTiles


class Ground:
    """A matrix that several searches share: the state that they begin with is made once, by the first that needs it.

    Parameters
    ----------
    matrix : Csr
    searches : int
        Searches that share the cores.
    """

    def __init__(self, matrix: Csr, searches: int = 1) -> None:
        self.matrix = matrix
        self.whole = matrix.row_lengths.astype(np.int32)
        self.threads = max(1, cores() // searches)
        self._ranges = Once()

    def columns(self, number: int, count: int) -> tuple[NDArray[np.int64] | None, Tiled]:
        """Give one of ``count`` ranges of columns: positions of its non-zeros (None for all), and a new `Tiled`."""
        where, tiled = self._ranges.get((number, count), lambda: self._columns(number, count))
        return where, tiled.again()

    def part(self, taken: NDArray[np.bool_]) -> Tiled:
        """Give a new `Tiled` of the non-zeros that ``taken`` (nnz,) marks."""
        matrix, before = self.matrix, offsets(taken, np.int32)
        marked = Csr(matrix.shape, before[matrix.indptr], matrix.indices[taken], matrix.values[taken])
        return Tiled.of(marked, self.whole, self.threads)

    def _columns(self, number: int, count: int) -> tuple[NDArray[np.int64] | None, Tiled]:
        if count == 1:
            return None, Tiled.of(self.matrix, self.whole, self.threads)
        size = -(-self.matrix.num_cols // count)
        inside = (self.matrix.indices >= number * size) & (self.matrix.indices < (number + 1) * size)
        return np.flatnonzero(inside), self.part(inside)


@dataclass(frozen=True, eq=False)
class Mixture:
    """The search of one mixture of formats."""

    ground: Ground
    shapes: Shapes
    ell: bool
    """SpMM."""
    rules: Rules
    late: Callable[[], bool]

    def pieces(self, count: int) -> list[Piece]:
        """Search over ``count`` ranges of columns."""
        return [piece for number in range(count) for piece in self._of_columns(number, count)]

    def _of_columns(self, number: int, count: int) -> list[Piece]:
        where, tiled = self.ground.columns(number, count)
        piece = Piece(where, self._greedy(tiled))
        alone = self.rules.formats is Formats.BLOCKS
        pieces = [piece] if alone else self._rearranged(piece)
        if len(pieces) == 1 and (alone or _mostly_blocks(piece.picked)):
            other = self._in_two_orders(where, tiled)
            pieces = other if spent_ms(other) < spent_ms(pieces) else pieces
        return pieces

    def _greedy(self, tiled: Tiled) -> PickedTiles:
        return Greedy(tiled, self.shapes, self.ell, self.rules, self.late).run()

    def _in_two_orders(self, where: NDArray[np.int64] | None, tiled: Tiled) -> list[Piece]:
        """Search blocks that pay by far in one order of rows, and all other non-zeros in another order.

        Blocks that hold a window whole may cost less than all else in their order, and still more than blocks in two
        orders. The list is empty where the rest is not much denser in another order.
        """
        if not self.rules.rearrange or self.late():
            return []
        # Blocks alone and the mixture begin with the same blocks.
        rules = replace(self.rules, formats=Formats.MIXED)
        key = "two orders", self.shapes.part, self.shapes.widest, rules
        begun = tiled.begun.get(key, lambda: self._first_order(where, tiled.again(), rules))
        if begun is None:
            return []
        first, left, rest = begun
        return [first, Piece(left, self._greedy(rest.again()))]

    def _first_order(
        self, where: NDArray[np.int64] | None, tiled: Tiled, rules: Rules
    ) -> tuple[Piece, NDArray[np.int64], Tiled] | None:
        """Give the blocks of the first order, the positions of the non-zeros left, and a `Tiled` of these."""
        shapes, price = self.shapes, self.shapes.price
        price = price._replace(plain_ms=price.plain_ms * _MUCH_CHEAPER, atomic_ms=price.atomic_ms * _MUCH_CHEAPER)
        strict = replace(shapes, price=price, cheapest_ms=shapes.cheapest_ms * _MUCH_CHEAPER)
        picked = Greedy(tiled, strict, self.ell, rules, self.late).run()
        light = picked.kind[picked.owner] == LIGHT
        if light.all() or not light.any():
            return None
        rest = self.ground.part(_spread(light, where, self.ground.matrix.nnz))
        if self.late() or not self._much_denser(rest, picked):
            return None
        kept, left = (np.flatnonzero(which) if where is None else where[which] for which in (~light, light))
        return Piece(kept, replace(picked, owner=picked.owner[~light])), left, rest

    def _much_denser(self, rest: Tiled, picked: PickedTiles) -> bool:
        """Tell whether the non-zeros left are much denser in an order of their own than in the order of ``picked``."""
        height = self.shapes.heights[0]
        return area(rest, order_of(rest, height), height) <= _MUCH_DENSER * area(rest, picked.order, height)

    def _rearranged(self, piece: Piece) -> list[Piece]:
        """Search the non-zeros that blocks leave once more, where another order of rows makes them much denser.

        The paper regroups these non-zeros level by level (section 3.1); its code keeps one order of rows for blocks. A
        band and the strides beside it are dense in two different orders.
        """
        where, picked = piece
        if not (self.rules.rearrange and self.rules.formats is Formats.MIXED and self.shapes.heights):
            return [piece]
        light = picked.kind[picked.owner] == LIGHT
        if light.all() or not light.any():
            return [piece]
        rest = self.ground.part(_spread(light, where, self.ground.matrix.nnz))
        if self.late() or not self._much_denser(rest, picked):
            return [piece]
        other = self._greedy(rest)
        kept, left = (replace(picked, owner=picked.owner[which]) for which in (~light, light))
        if other.spent_ms >= left.spent_ms:
            return [piece]
        of_kept, of_other = (np.flatnonzero(which) if where is None else where[which] for which in (~light, light))
        return [Piece(of_kept, kept), *self._rearranged(Piece(of_other, other))]


def spent_ms(pieces: list[Piece]) -> float:
    """Give the cost of all tiles; infinite for an empty list."""
    return sum(piece.picked.spent_ms for piece in pieces) if pieces else math.inf


def _spread(mask: NDArray[np.bool_], where: NDArray[np.int64] | None, nnz: int) -> NDArray[np.bool_]:
    """Translate a mask over the non-zeros at ``where`` to a mask over all of the matrix, (nnz,)."""
    if where is None:
        return mask
    whole = np.zeros(nnz, np.bool_)
    whole[where[mask]] = True
    return whole


def _mostly_blocks(picked: PickedTiles) -> bool:
    """Tell whether blocks hold more than half of the non-zeros, so that too few are left to be rearranged."""
    return 2 * int(np.count_nonzero(picked.kind[picked.owner] == LIGHT)) < picked.owner.size
