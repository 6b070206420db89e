"""Algorithm 2 literally: every candidate made anew and looked at in every round, one pick a round."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from spmark.impls.core.problem import Csr
from spmark.impls.stile.space import Shapes


@dataclass
class Slow:
    """A run in the paper's mode without local search, over Python lists and sets."""

    matrix: Csr
    shapes: Shapes
    order: list[int]
    withdraw: bool = True
    owner: dict[int, int] = field(default_factory=dict)
    cost: list[float] = field(default_factory=list)
    owned: list[int] = field(default_factory=list)
    home: list[set[tuple[int, int]]] = field(default_factory=list)
    averages: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        indptr = self.matrix.indptr
        self.row = [r for r in range(self.matrix.num_rows) for _ in range(indptr[r], indptr[r + 1])]
        self.windows = [
            (h, first, self.order[first : first + height])
            for h, height in enumerate(self.shapes.heights)
            for first in range(0, len(self.order), height)
        ]
        self.paid = {(h, first): 0.0 for h, first, _ in self.windows}

    def of_rows(self, rows: list[int]) -> list[int]:
        return [at for r in rows for at in range(self.matrix.indptr[r], self.matrix.indptr[r + 1])]

    def free(self, items: list[int]) -> list[int]:
        return [at for at in items if at not in self.owner]

    def condensed(self, items: list[int]) -> list[list[int]]:
        counts: dict[int, int] = {}
        for at in items:
            column = int(self.matrix.indices[at])
            counts[column] = counts.get(column, 0) + 1
        columns = sorted(counts, key=lambda c: -counts[c])
        groups = [set(columns[i : i + 16]) for i in range(0, len(columns), 16)]
        return [[at for at in items if int(self.matrix.indices[at]) in group] for group in groups]

    def whole_ms(self, height: int, rows: list[int]) -> float:
        columns = len({int(self.matrix.indices[at]) for at in self.of_rows(rows)})
        costs = self.shapes.plain_ms[height]
        return min(-(-columns // (16 * (s + 1))) * c for s, c in enumerate(costs) if math.isfinite(c))

    def best_block(self) -> tuple[float, list[int], float]:
        single: tuple[float, list[int], float] = (math.inf, [], 0.0)
        whole = single
        for h, first, rows in self.windows:
            everything = self.of_rows(rows)
            items = self.free(everything)
            if not items:
                continue
            if self.withdraw or len(items) == len(everything):
                cost = self.whole_ms(h, rows)
                average = (cost - self.paid[h, first]) / len(items)
                whole = min(whole, (average, everything, cost), key=lambda found: found[0])
            groups = self.condensed(items)
            for s, cost in enumerate(self.shapes.single_ms[h]):
                for q in range(max(1, len(groups) - s)):
                    inside = [at for group in groups[q : q + s + 1] for at in group]
                    if cost / len(inside) < single[0]:
                        single = (cost / len(inside), inside, cost)
                if s + 1 >= len(groups):
                    break
        return whole if whole[1] and whole[0] <= single[0] else single

    def best_light(self) -> tuple[float, list[int], float]:
        price, widest = self.shapes.price, self.shapes.widest
        pieces: dict[bool, list[list[int]]] = {False: [], True: []}
        for row in range(self.matrix.num_rows):
            everything = self.of_rows([row])
            items = self.free(everything)
            for i in range(0, len(items), widest):
                pieces[len(items) < len(everything)].append(items[i : i + widest])
        best: tuple[float, list[int], float] = (math.inf, [], 0.0)
        for touched in (False, True):
            ranked = sorted(pieces[touched], key=lambda piece: -len(piece))
            for s, (width, height) in enumerate(zip(price.width, price.height, strict=True)):
                starts = [i for i, piece in enumerate(ranked) if width // 2 < len(piece) <= width]
                for first in starts[::height]:
                    tile = [at for piece in ranked[first : first + height] for at in piece]
                    cost = self.light_ms(s, ranked[first : first + height])
                    best = min(best, (cost / len(tile), tile, cost), key=lambda found: found[0])
        return best

    def light_ms(self, shape: int, pieces: list[list[int]]) -> float:
        price = self.shapes.price
        columns = len({int(self.matrix.indices[at]) for piece in pieces for at in piece})
        rows = [self.row[piece[0]] for piece in pieces]
        inside = {row: sum(len(p) for p, r in zip(pieces, rows, strict=True) if r == row) for row in rows}
        alone = all(inside[row] == len(self.of_rows([row])) and inside[row] <= price.width[shape] for row in inside)
        return float((price.plain_ms if alone else price.atomic_ms)[shape, 0, columns])

    def pick(self, items: list[int], cost: float) -> None:
        tile = len(self.cost)
        self.cost.append(cost)
        self.owned.append(len(items))
        for at in items:
            old = self.owner.get(at)
            if old is not None:
                self.owned[old] -= 1
                if self.owned[old] == 0:
                    for key in self.home[old]:
                        self.paid[key] -= self.cost[old]
            self.owner[at] = tile
        rows = {self.row[at] for at in items}
        self.home.append({(h, first) for h, first, held in self.windows if rows <= set(held)})
        for key in self.home[tile]:
            self.paid[key] += cost

    def run(self) -> float:
        while len(self.owner) < self.matrix.nnz:
            block, light = self.best_block(), self.best_light()
            average, items, cost = block if block[0] <= light[0] else light
            self.averages.append(average)
            taken = items if cost and block[0] <= light[0] and len(items) > len(self.free(items)) else self.free(items)
            self.pick(taken, cost)
        return sum(c for c, n in zip(self.cost, self.owned, strict=True) if n)


def labels(owner: np.ndarray) -> np.ndarray:
    """Number tiles by their first non-zero, so that two runs can be compared."""
    _, first, inverse = np.unique(owner, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]
