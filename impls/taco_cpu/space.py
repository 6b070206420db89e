"""The configs of TACO's CPU loop nests: splits, loop order, level formats and chunk, after WACO's sampler.

Each of the indices i, k and j is split into an outer loop (``i1``) and an inner loop (``i0``) of ``isplit`` iterations.
A is stored level by level in the order in which the loops over i and k are nested.

Kjolstad, Kamil, Chou, Lugato and Amarasinghe, "The tensor algebra compiler", OOPSLA 2017. Won, Mendis, Emer and
Amarasinghe, "WACO: learning workload-aware co-optimization of the format and schedule of a sparse tensor program",
ASPLOS 2023; the space is that of its public sampler.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import permutations, product
from typing import Any

from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Op
from spmark.impls.tuning.space import Space, key_of

LOOPS = ("i1", "i0", "k1", "k0", "j1", "j0")
LEVELS = LOOPS[:4]
"""The loops over A, one level of storage each; ``formats`` has a letter for each, in this order."""
COMPRESSED, UNCOMPRESSED = "C", "U"
SPLITS = {"i": "isplit", "k": "ksplit", "j": "jsplit"}
"""The tunable that splits an index."""
CSR: Config = {
    **dict.fromkeys(SPLITS.values(), 1),
    "order": "i1 i0 k1 k0 j1 j0",
    "formats": "UUCU",
    "chunk": 32,
}
"""The system's own default: A in CSR, rows in parallel."""
MOST_SPLIT = 1 << 16
_VECTOR = 8
"""Iterations of j0 below which a vector is not full, so that j1 may not be far from j0."""


@dataclass(frozen=True)
class Nest:
    """A loop nest, which is one program: all sizes and splits are its arguments."""

    op: Op
    loops: tuple[str, ...]
    """Outermost first; the inner loop of a split of 1 is left out."""
    compressed: frozenset[str]
    """The levels of A that are compressed."""

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels of A, in storage order."""
        return tuple(loop for loop in self.loops if loop in LEVELS)

    @property
    def parallel(self) -> str:
        """The loop whose iterations threads share, as in WACO.

        It is i1 in SpMM, where no two rows of C meet, and the outer one of i1 and k1 in SDDMM, where no two elements
        of the result meet.
        """
        return next(loop for loop in self.loops if loop == "i1" or (loop == "k1" and self.op is Op.SDDMM))

    @property
    def name(self) -> str:
        """The function's name: operator, loops, and a letter for the format of each level, such as ``i1u``."""
        marks = {loop: "c" if loop in self.compressed else "u" for loop in self.levels}
        return "_".join([str(self.op), *(loop + marks.get(loop, "") for loop in self.loops)])


def nest_of(op: Op, config: Mapping[str, Any]) -> Nest:
    """Give the nest of a legal config."""
    once = {f"{index}0" for index, split in SPLITS.items() if config[split] == 1}
    loops = tuple(loop for loop in config["order"].split() if loop not in once)
    formats = zip(LEVELS, config["formats"], strict=True)
    return Nest(op, loops, frozenset(loop for loop, letter in formats if letter == COMPRESSED and loop in loops))


def why_illegal(op: Op | None, config: Mapping[str, Any]) -> str | None:
    """Say why a config has no loop nest for an operator, or for any where ``op`` is None; None where it has one.

    The rules are those of WACO's sampler. Configs that differ in the place or format of a loop with one iteration
    are the same program, of which one is legal.
    """
    return next(_faults(op, config), None)


def _faults(op: Op | None, config: Mapping[str, Any]) -> Iterator[str]:
    for split in (*SPLITS.values(), "chunk"):
        value = config[split]
        if not isinstance(value, int) or not 1 <= value <= MOST_SPLIT or value & (value - 1):
            yield f"expected {split} as a power of two of at most {MOST_SPLIT:,}, found {value!r}"
    order, formats = config["order"], config["formats"]
    if not isinstance(order, str) or sorted(order.split()) != sorted(LOOPS):
        yield f"expected order to name each of {', '.join(LOOPS)} once, found {order!r}"
    known = {COMPRESSED, UNCOMPRESSED}
    if not isinstance(formats, str) or len(formats) != len(LEVELS) or not set(formats) <= known:
        yield f"expected formats of a letter C or U for each of {', '.join(LEVELS)}, found {formats!r}"
    loops = order.split()
    depth, found = {loop: loops.index(loop) for loop in loops}, f"found {' '.join(loops)}"
    for index, split in SPLITS.items():
        outer, inner = f"{index}1", f"{index}0"
        if depth[outer] > depth[inner]:
            yield f"expected {outer} outside of {inner}, {found}"
        if config[split] == 1 and depth[inner] != depth[outer] + 1:
            yield f"expected {inner} directly inside of {outer} where {split} is 1, {found}: it has one iteration"
        if config[split] == 1 and inner in LEVELS and formats[LEVELS.index(inner)] == COMPRESSED:
            yield f"expected {inner} uncompressed where {split} is 1, found formats {formats}: it has one coordinate"
    if loops[-1] != "j0":
        yield f"expected j0 innermost, {found}: the innermost loop runs in vectors along rows of dense operands"
    if config["jsplit"] < _VECTOR and loops[-2] != "j1":
        yield f"expected j1 directly outside of j0 where jsplit is below {_VECTOR}, {found}: vectors would be short"
    if op is Op.SPMM and depth["i1"] > depth["j1"]:
        yield f"{op}: expected i1 outside of j1, found {order}"
    if op is Op.SDDMM and COMPRESSED not in formats:
        yield f"{op}: expected a compressed level, found formats {formats}: a dense matrix"


@cache
def space_of(op: Op) -> Space:
    """Give the space of an operator: WACO's values, with splits of i and k up to 32 for SDDMM, too."""
    return _space(op, {"isplit": _powers(32), "ksplit": _powers(32), "jsplit": _powers(128)})


@cache
def digest_of(op: Op) -> str:
    """Give sixteen hex digits that tell versions of an operator's space apart, in some 10 ms.

    `Space.digest` would list half a million configs. A rule asks of a split only whether it is 1 or below a vector's
    length, and no rule asks for the chunk. So the digest covers all axes, and the legal configs of one split of each
    kind.
    """
    kinds = _space(op, {"isplit": [1, 2], "ksplit": [1, 2], "jsplit": [1, 2, _VECTOR]}, chunks=[1])
    axes = key_of({axis.name: axis.values for axis in space_of(op).axes})
    return hashlib.sha256(f"{axes}\n{kinds.digest}".encode()).hexdigest()[:16]


def _space(op: Op, splits: Mapping[str, list[int]], chunks: list[int] | None = None) -> Space:
    def legal(config: Mapping[str, Any]) -> bool:
        return why_illegal(op, config) is None

    widest = CSR | dict.fromkeys(SPLITS.values(), MOST_SPLIT)
    values: dict[str, Iterable[Any]] = {
        **splits,
        "order": [order for order in map(" ".join, permutations(LOOPS)) if legal({**widest, "order": order})],
        "formats": map("".join, product((COMPRESSED, UNCOMPRESSED), repeat=len(LEVELS))),
        "chunk": chunks or _powers(256 if op is Op.SPMM else 32),
    }
    return Space.of(values, legal)


def _powers(most: int) -> list[int]:
    return [1 << power for power in range(most.bit_length())]
