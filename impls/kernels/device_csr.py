"""A CSR whose arrays are on a target already: what a schedule depends on, and its long rows, are found there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from spmark.impls.core.errors import MatrixError
from spmark.impls.core.interfaces import DeviceArray
from spmark.impls.core.problem import Csr, DType, Op, PlainProblem
from spmark.impls.kernels.direct_spmm import NO_PIECES, Pieces, piece_length
from spmark.impls.runtime.target import Kernel, Target, ceil_div
from spmark.impls.runtime.template import KernelTemplate

_THREADS = 256
_SOURCE = Path(__file__).parent / "device_csr.cu"
CSR_FACTS = KernelTemplate(_SOURCE, "csr_facts", {"threads": (_THREADS,)})
CSR_PIECES = KernelTemplate(_SOURCE, "csr_pieces", {"threads": (_THREADS,)})
_Room = tuple[Kernel, DeviceArray, DeviceArray, Callable[[], list[int]]]
"""`CSR_FACTS`; its counters, (5,) int32, 0 between two grids; its facts, (4,) int32; and what reads these."""


@cache
def _rooms(_target: Target) -> list[_Room]:
    """Keep what no matrix has at the moment: to make it takes longer than to find the facts."""
    return []


@dataclass(frozen=True, eq=False)
class DeviceCsr(Csr):
    """A CSR whose arrays are on a target. A row may name a column several times, and columns in any order.

    Of the facts of a `Csr` it has the sizes, and those that `check` finds by a kernel in O(I + nnz).
    """

    target: Target

    def begin(self) -> None:
        """Enqueue the kernel on the stream of `check`, so that it runs while the host does other work before that."""
        if "_room" in self.__dict__:
            return
        target, nnz = self.target, self.nnz
        try:
            room = _rooms(target).pop()
        except IndexError:
            kernel = target.kernel(CSR_FACTS.instance(threads=_THREADS))
            room = (kernel, target.filled((5,), np.int32, 0), *target.readable(4))
        kernel, *written, _ = room
        blocks = min(ceil_div(max(self.shape[0], nnz), _THREADS), 2 * target.spec.num_sms)
        kernel.launch((blocks, 1, 1), (*map(np.int32, (*self.shape, nnz)), self.indptr, self.indices, *written))
        self.__dict__["_room"] = room

    def check(self) -> None:
        """Refuse arrays with which a kernel would read elsewhere; with what is found, the other facts are known.

        Raises
        ------
        MatrixError
            A row's pointers or a column are illegal.
        """
        self.begin()
        room = self.__dict__.pop("_room")
        longest, filled, wrong_row, wrong_place = room[-1]()
        _rooms(self.target).append(room)
        if wrong_row:
            raise MatrixError(
                f"matrix: expected row pointers that rise from 0 to nnz = {self.nnz}, found others at row "
                f"{self.num_rows - wrong_row}: scipy.sparse.csr_array(...).check_format() tells more"
            )
        if wrong_place:
            at = self.nnz - wrong_place
            raise MatrixError(
                f"matrix: expected columns in [0, {self.num_cols}), found {int(self.indices[at])} at position {at}"
            )
        self.__dict__.update(longest_row=longest, filled_rows=filled)

    @cached_property
    def longest_row(self) -> int:
        """Elements of the longest row; whoever asks for it first checks the matrix."""
        self.check()
        return self.longest_row

    def pieces(self, rows: int, longest: int) -> Pieces:
        """List the pieces of long rows as `pieces_of_blocks` does, but in no certain order of rows.

        Results do not depend on that order, since the pieces of a row are added up in theirs.
        """
        if longest >= self.longest_row:
            return NO_PIECES
        piece = piece_length(longest)
        kernel = self.target.kernel(CSR_PIECES.instance(threads=_THREADS))
        counts = self.target.filled((3,), np.int32, 0)
        # A row of several pieces has at most twice as many as pieces of full length would fill.
        most_shared = 2 * self.nnz // piece
        most_whole = min(self.num_rows, rows * (self.nnz // (longest + 1)))
        made = self.target.empty((most_shared + most_whole, 4), np.int32)
        sizes = map(np.int32, (self.num_rows, rows, longest, piece, most_shared))
        grid = (ceil_div(ceil_div(self.num_rows, rows), _THREADS), 1, 1)
        kernel.launch(grid, (*sizes, self.indptr, counts, made))
        whole, shared, shared_rows = map(int, self.target.download(counts))
        return Pieces(made[most_shared - shared : most_shared + whole], shared, shared_rows)


class DeviceProblem(PlainProblem):
    """SpMM with a `DeviceCsr`, whose values are taken as they are.

    Parameters
    ----------
    matrix : DeviceCsr
    width : int
        J.
    dtype : DType or numpy.dtype
        Of the values: NumPy's where it is no `DType`.
    """

    def __init__(self, matrix: DeviceCsr, width: int, dtype: DType | np.dtype[Any]) -> None:
        self.__dict__.update(op=Op.SPMM, matrix=matrix, width=width, dtype=dtype, scaled=False, values=matrix.values)
