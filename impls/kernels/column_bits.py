"""Count distinct columns by the length of the pieces that touch them, on the device, for large matrices.

One pass over the non-zeros sets a bit for each power of two and column, and a second kernel counts the bits.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.interfaces import DeviceArray
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import KernelTemplate

POWERS = 11
"""Powers of two that are told apart: lengths up to 1, 2, 4, ... 1,024 and beyond."""
_THREADS = 256
_MAX_BLOCKS = 4096
_SOURCE = Path(__file__).parent / "column_bits.cu"
MARK_COLUMNS = KernelTemplate(_SOURCE, "mark_columns", {"cut": (False, True), "threads": (_THREADS,)}, max_registers=40)
COUNT_MARKS = KernelTemplate(_SOURCE, "count_marks", {"threads": (_THREADS,)}, max_registers=40)


class ColumnBits:
    """The kernels on a target, for one number of column partitions.

    Parameters
    ----------
    target : Target
    partitions : int
        Ranges of ceil(K / partitions) columns.

    Raises
    ------
    CompileError
        A kernel does not compile.
    """

    def __init__(self, target: Target, partitions: int) -> None:
        self._target, self._partitions = target, partitions
        marking = MARK_COLUMNS.instance(cut=partitions > 1, threads=_THREADS)
        self._mark, self._count = target.load([marking, COUNT_MARKS.instance(threads=_THREADS)])

    def count(
        self, indptr: NDArray[np.int32], indices: DeviceArray, num_cols: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Count the distinct columns of every column partition by the length of the pieces that touch them.

        Parameters
        ----------
        indptr : (I + 1,) int32
            On the host; uploaded for the count.
        indices : (nnz,) int32 device array
            Rising within each row.
        num_cols : int
            K.

        Returns
        -------
        own, above : (partitions, POWERS) int64
            ``own``: columns that a piece of more than 2^(p-1) and up to 2^p non-zeros touches; the last power counts
            longer pieces, too. ``above``: columns that a piece of this or a longer length touches. O(nnz), times the
            bisection of a row where there are several partitions; 4 (I + K) bytes of scratch on the target.
        """
        num_rows, width = indptr.size - 1, ceil_div(num_cols, self._partitions)
        rows = self._target.upload(indptr)
        marks = self._target.upload(np.zeros(num_cols, np.uint32))
        counts = self._target.upload(np.zeros((self._partitions, 2, POWERS), np.int32))
        grid = (min(ceil_div(num_rows, _THREADS // 32), _MAX_BLOCKS), 1, 1)
        self._mark.launch(grid, (np.int32(num_rows), np.int32(width), rows, indices, marks))
        blocks = min(ceil_div(width, _THREADS), ceil_div(_MAX_BLOCKS, self._partitions))
        self._count.launch((blocks, self._partitions, 1), (np.int32(num_cols), np.int32(width), marks, counts))
        columns = self._target.download(counts).astype(np.int64)
        return columns[:, 0], columns[:, 1]
