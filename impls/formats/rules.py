"""The rules of `spmark.impls.formats.decompose`: dense blocks, buckets of ELL rows, and the remainder.

Each rule names the kernel body that computes the rule's part.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr
from spmark.impls.formats.bsr import BsrFormat
from spmark.impls.formats.csr import CsrFormat
from spmark.impls.formats.decompose import Part
from spmark.impls.formats.hyb import HybFormat, lay_out, widths_up_to
from spmark.impls.formats.pieces import partition_columns
from spmark.impls.formats.threads import equal_shares, run_all


@dataclass(frozen=True)
class BlockRule:
    """BSR(b) of the blocks that are dense enough, for matrix units.

    Raises
    ------
    ValueError
        A size below 1, or a density outside of (0, 1].
    """

    size: int = 16
    """b: rows and columns of a block; blocks start at multiples of it."""
    min_density: float = 0.5
    """Least non-zeros of a block over b^2."""
    kernel: ClassVar[str] = "bsr_tiles"

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"expected blocks of at least 1 x 1, found {self.size}")
        if not 0 < self.min_density <= 1:
            raise ValueError(f"expected a least density in (0, 1], found {self.min_density}")

    def select(self, rest: Csr) -> NDArray[np.bool_]:
        """Take the non-zeros of dense blocks. O(nnz) on all cores."""
        from spmark.impls.formats import loops

        least = max(1, int(np.ceil(self.min_density * self.size**2)))
        marks = np.zeros(rest.nnz, np.bool_)
        shares = pairwise(equal_shares(rest.indptr, self.size))
        num_block_cols = -(-rest.num_cols // self.size)
        given = rest.indptr, rest.indices, self.size, self.size, least
        run_all(
            loops.mark_dense_blocks, ((*given, *share, np.zeros(num_block_cols, np.int32), marks) for share in shares)
        )
        return marks

    def store(self, chosen: Csr, elsewhere: NDArray[np.bool_]) -> Part:
        """Give a `BsrFormat`, in which one block row sums all of a row."""
        return Part(BsrFormat.from_csr(chosen, self.size, self.size), self.kernel, _filled_rows(chosen))


@dataclass(frozen=True)
class Buckets:
    """hyb(c, k): rows in column partitions, padded to the next power of two; long ones are folded, or left.

    Raises
    ------
    ValueError
        ``max_width`` is not a power of two.
    """

    max_width: int = 32
    """2^k, width of the last bucket."""
    partitions: int = 1
    """c."""
    fold: bool = True
    """Whether pieces longer than the last bucket are folded; otherwise the next rule gets them."""
    kernel: ClassVar[str] = "ell_buckets"

    def __post_init__(self) -> None:
        widths_up_to(self.max_width)

    def select(self, rest: Csr) -> NDArray[np.bool_]:
        """Take every piece that fits, or every non-zero where pieces are folded."""
        if self.fold:
            return np.ones(rest.nnz, np.bool_)
        pieces = partition_columns(rest, self.partitions)
        return np.repeat(pieces.lengths <= self.max_width, pieces.lengths)

    def store(self, chosen: Csr, elsewhere: NDArray[np.bool_]) -> Part:
        """Give a `HybFormat`."""
        pieces = partition_columns(chosen, self.partitions)
        layout = lay_out(pieces, [widths_up_to(self.max_width)] * self.partitions, elsewhere=elsewhere)
        hyb = HybFormat.from_layout(chosen, layout)
        return Part(hyb, self.kernel, hyb.rows[hyb.rows >= 0])


@dataclass(frozen=True)
class Remainder:
    """CSR of all non-zeros that are left."""

    kernel: ClassVar[str] = "csr_rows"

    def select(self, rest: Csr) -> NDArray[np.bool_]:
        """Take every non-zero."""
        return np.ones(rest.nnz, np.bool_)

    def store(self, chosen: Csr, elsewhere: NDArray[np.bool_]) -> Part:
        """Give a `CsrFormat` without copying."""
        return Part(CsrFormat.from_csr(chosen), self.kernel, _filled_rows(chosen))


def _filled_rows(matrix: Csr) -> NDArray[np.int32]:
    return np.flatnonzero(matrix.row_lengths).astype(np.int32)
