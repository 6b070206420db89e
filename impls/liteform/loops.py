"""The compiled loops of composing: votes of trees, and marks of columns.

Importing this module compiles the loops, or reads their compiled code from Numba's cache, as
`spmark.impls.formats.loops` does. The loops release Python's lock, so that threads run them side by side.

The caller allocates every buffer. Buffers that a loop adds to or marks are zeros before the first call.
"""

from __future__ import annotations

from typing import Any, Final

from numba import types

from spmark.impls.core.loops import compiled

MAX_POWER: Final = 10
"""Binary logarithm of the widest bucket, 1,024: the paper's limit, the threads of a block."""
_LONG = types.int64
_IN = types.Array(types.int32, 1, "C", readonly=True)
_SHORT_IN = types.Array(types.int16, 1, "C", readonly=True)
_REAL_IN = types.Array(types.float64, 1, "C", readonly=True)
_REALS_IN = types.Array(types.float64, 2, "C", readonly=True)
_BITS = types.Array(types.uint16, 1, "C", readonly=True)


@compiled(types.void, _IN, _SHORT_IN, _REAL_IN, _IN, _IN, _REALS_IN, types.float32[::1], types.float64[::1])
def add_votes(  # noqa: PLR0917 (Numba takes no keyword-only arguments)
    roots: Any, feature: Any, threshold: Any, left: Any, right: Any, leaves: Any, sample: Any, votes: Any
) -> None:
    """Add the class shares of the leaf that ``sample`` falls into, tree after tree.

    Parameters
    ----------
    roots : (trees,) int32
        First node of each tree. This and the next five are the arrays of `spmark.impls.liteform.forest.Forest`.
    feature : (nodes,) int16
        Feature that a node looks at, -1 in a leaf.
    threshold : (nodes,) float64
        Samples up to this value go left.
    left, right : (nodes,) int32
        Children of a node; ``left`` of a leaf is its row of ``leaves``.
    leaves : (m, classes) float64
        Share of each class in each leaf.
    sample : (f,) float32
        Standardised features of one matrix.
    votes : (classes,) float64
        Added to: the sum of the shares over the trees.
    """
    for tree in range(roots.size):
        node = roots[tree]
        while feature[node] >= 0:
            node = left[node] if sample[feature[node]] <= threshold[node] else right[node]
        for label in range(votes.size):
            votes[label] += leaves[left[node], label]


@compiled(types.void, _IN, _IN, _IN, _BITS, _LONG, _LONG, types.uint16[::1])
def mark_columns(  # noqa: PLR0917
    indices: Any, starts: Any, lengths: Any, bits: Any, first: Any, stop: Any, marks: Any
) -> None:
    """Mark the columns that pieces ``first:stop`` touch by the pieces' bits.

    Parameters
    ----------
    indices : (nnz,) int32
        Columns of A in CSR.
    starts, lengths : (n,) int32
        First non-zero, and non-zeros, of each piece.
    bits : (n,) uint16
        One bit of each piece.
    marks : (K,) uint16
        Written by "or".
    """
    for piece in range(first, stop):
        for at in range(starts[piece], starts[piece] + lengths[piece]):
            marks[indices[at]] |= bits[piece]
