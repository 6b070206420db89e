"""ELL: every row padded to the same number of slots, so that a kernel needs no row pointers.

Bell and Garland, "Implementing sparse matrix-vector multiplication on throughput-oriented processors", SC 2009, section
3.2; here slots are row-major, since a warp or a vector load walks along a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr
from spmark.impls.core.spans import offsets
from spmark.impls.formats.limits import check_stored


@dataclass(frozen=True, eq=False)
class EllFormat:
    """Rows of equal length.

    The first ``row_lengths[i]`` slots of row i are its non-zeros in column order. Every later slot is padding: value 0
    and the row's last column (column 0 in an empty row). A kernel may thus multiply every slot without a branch, and
    its loads hit a cached line. Padding is known by position, never by value: stored zeros are kept.
    """

    name: ClassVar[str] = "ell"

    shape: tuple[int, int]
    """(I, K)."""
    indices: NDArray[np.int32]
    """(I, row_slots) int32 columns, row-major."""
    values: NDArray[np.float32]
    """(I, row_slots) float32, row-major."""
    row_lengths: NDArray[np.int32]
    """(I,) int32: slots of each row that are non-zeros of the matrix."""

    @classmethod
    def from_csr(cls, matrix: Csr, row_slots: int | None = None) -> EllFormat:
        """Pad every row of ``matrix``.

        Parameters
        ----------
        matrix : Csr
        row_slots : int, optional
            Slots of a row; by default the length of the longest row.

        Returns
        -------
        EllFormat
            O(nnz + stored).

        Raises
        ------
        ValueError
            A row is longer than ``row_slots``.
        BuildError
            More than `spmark.impls.formats.limits.MAX_STORED` elements.
        """
        lengths = matrix.row_lengths
        longest = int(lengths.max())
        row_slots = longest if row_slots is None else row_slots
        if row_slots < longest:
            raise ValueError(
                f"expected row_slots of at least the longest row, {longest} (row {int(lengths.argmax())}), "
                f"found {row_slots}"
            )
        check_stored(f"ell({row_slots})", matrix, matrix.num_rows * row_slots)
        last = np.zeros(matrix.num_rows, np.int32)
        filled = lengths > 0
        last[filled] = matrix.indices[matrix.indptr[1:][filled] - 1]
        indices = np.repeat(last, row_slots).reshape(matrix.num_rows, row_slots)
        values = np.zeros_like(indices, np.float32)
        real = _real_slots(lengths, row_slots)
        indices[real] = matrix.indices
        values[real] = matrix.values
        return cls(matrix.shape, indices, values, lengths)

    @property
    def row_slots(self) -> int:
        """Slots of every row."""
        return int(self.indices.shape[1])

    @property
    def stored(self) -> int:
        """Elements held, padding included: I row_slots."""
        return self.indices.size

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Give ``indices``, ``values`` and ``row_lengths`` (a kernel that multiplies padding needs no lengths)."""
        return {"indices": self.indices, "values": self.values, "row_lengths": self.row_lengths}

    def to_csr(self) -> Csr:
        """Give the matrix back; O(stored)."""
        real = _real_slots(self.row_lengths, self.row_slots)
        return Csr(self.shape, offsets(self.row_lengths, np.int32), self.indices[real], self.values[real])


def _real_slots(lengths: NDArray[np.int32], row_slots: int) -> NDArray[np.bool_]:
    # Row-major, so that masking walks the slots in CSR order.
    return np.arange(row_slots, dtype=np.int32) < lengths[:, None]
