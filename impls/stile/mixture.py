"""One mixture of formats: a run of the search for every range of columns, and for every order of rows that pays.

Fang, Shen, Wang and Chen, "STile", SIGMOD 2024, section 3.1. The choice of the order of rows for blocks is our own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spmark.impls.stile.greedy import Greedy, PickedTiles
from spmark.impls.stile.space import Formats, Rules, Shapes
from spmark.impls.stile.windows import Tiled, area, order_of

_MUCH_DENSER = 0.75
"""Groups of columns in another order of rows over groups in the present one: below this, a second search pays."""

_MUCH_CHEAPER = 0.5
"""Factor on the cost of light tiles while two orders of rows are tried: only blocks that cost less than this share keep
their non-zeros from the second order."""


class Piece(NamedTuple):
    """Non-zeros and their tiles."""

    where: NDArray[np.int64]
    """(n,) positions in CSR order, rising."""
    picked: PickedTiles

    def those(self, which: NDArray[np.bool_], tiles: NDArray[np.bool_]) -> Piece:
        """Give the non-zeros that ``which`` (n,) marks, and their tiles, which ``tiles`` (tiles,) marks."""
        owner, used = self.picked.owner[which], self.picked.used[tiles[self.picked.used]]
        return Piece(self.where[which], replace(self.picked, owner=owner, used=used))


@dataclass(frozen=True, eq=False)
class Mixture:
    """The search of one mixture of formats."""

    tiled: Tiled
    """All of the matrix."""
    shapes: Shapes
    rules: Rules

    def pieces(self, count: int) -> list[Piece]:
        """Search over ``count`` ranges of columns."""
        return [piece for number in range(count) for piece in self._of_columns(*self.tiled.columns(number, count))]

    def _of_columns(self, where: NDArray[np.int64], tiled: Tiled) -> list[Piece]:
        piece = Piece(where, self._greedy(tiled))
        alone = self.rules.formats == Formats.BLOCKS
        pieces = [piece] if alone else self._rearranged(piece)
        # Where blocks hold more than half of the non-zeros, too few are left to be rearranged.
        if len(pieces) == 1 and (alone or 2 * np.count_nonzero(piece.picked.in_light) < tiled.matrix.nnz):
            other = self._in_two_orders(where, tiled)
            pieces = other if other and spent_ms(other) < spent_ms(pieces) else pieces
        return pieces

    def _greedy(self, tiled: Tiled) -> PickedTiles:
        return Greedy(tiled, self.shapes, self.rules).run()

    def _rearranged(self, piece: Piece) -> list[Piece]:
        """Search the non-zeros that blocks leave once more, where another order of rows makes them much denser.

        The paper regroups these non-zeros level by level (section 3.1); its code keeps one order of rows for blocks. A
        band and the strides beside it are dense in two different orders.
        """
        if not (self.rules.rearrange and self.rules.formats == Formats.MIXED and self.shapes.heights):
            return [piece]
        if (parts := self._parted(piece)) is None:
            return [piece]
        kept, left, rest = parts
        other = self._greedy(rest)
        pays = other.spent_ms < left.picked.spent_ms
        return [kept, *self._rearranged(Piece(left.where, other))] if pays else [piece]

    def _in_two_orders(self, where: NDArray[np.int64], tiled: Tiled) -> list[Piece]:
        """Search blocks that pay by far in one order of rows, and all other non-zeros in another order.

        Blocks that hold a window whole may cost less than all else in their order, and still more than blocks in two
        orders. The list is empty where the rest is not much denser in another order.
        """
        if not self.rules.rearrange:
            return []
        # Blocks alone and the mixture begin with the same blocks.
        rules = replace(self.rules, formats=Formats.MIXED)

        def first_order() -> tuple[Piece, Piece, Tiled] | None:
            shapes, price = self.shapes, self.shapes.price
            price = price._replace(plain_ms=price.plain_ms * _MUCH_CHEAPER, atomic_ms=price.atomic_ms * _MUCH_CHEAPER)
            strict = replace(shapes, price=price, cheapest_ms=shapes.cheapest_ms * _MUCH_CHEAPER)
            return self._parted(Piece(where, Greedy(tiled.again(), strict, rules).run()))

        parts = tiled.begun.get(("two orders", self.shapes.part, self.shapes.widest, rules), first_order)
        if parts is None:
            return []
        kept, left, rest = parts
        return [kept, Piece(left.where, self._greedy(rest.again()))]

    def _parted(self, piece: Piece) -> tuple[Piece, Piece, Tiled] | None:
        """Part blocks from light tiles; also begin with the latter's non-zeros where another order is much denser."""
        light = piece.picked.in_light
        if light.all() or not light.any():
            return None
        tiles = piece.picked.light
        kept, left = piece.those(~light, ~tiles), piece.those(light, tiles)
        taken = np.zeros(self.tiled.matrix.nnz, np.bool_)
        taken[left.where] = True
        rest, height = self.tiled.part(taken), self.shapes.heights[0]
        now, then = (area(rest, order, height) for order in (piece.picked.order, order_of(rest, height)))
        return None if then > _MUCH_DENSER * now else (kept, left, rest)


def spent_ms(pieces: list[Piece]) -> float:
    """Give the cost of all tiles."""
    return sum(piece.picked.spent_ms for piece in pieces)
