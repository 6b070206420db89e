"""The compiled loop of composing, which marks columns.

Importing this module compiles the loop, or reads its compiled code from Numba's cache, as
`spmark.impls.formats.loops` does. The loop releases Python's lock, so that threads run it side by side.
"""

from __future__ import annotations

from typing import Any, Final

from numba import types

from spmark.impls.core.loops import IN, LONG, compiled

MAX_POWER: Final = 10
"""Binary logarithm of the widest bucket, 1,024: the paper's limit, the threads of a block."""
_BITS = types.Array(types.uint16, 1, "C", readonly=True)


@compiled(types.void, IN, IN, IN, _BITS, LONG, LONG, types.uint16[::1])
def mark_columns(  # noqa: PLR0917 (Numba takes no keyword-only arguments)
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
