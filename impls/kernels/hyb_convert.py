"""Conversion of CSR to hyb(c, k) on the target: the matrix is uploaded once, for any number of conversions.

The host lays out rows, in time of the number of ELL rows; a kernel copies the elements. The result is that of
`spmark.impls.formats.hyb.HybFormat.from_csr`, bit for bit.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.interfaces import Built, DeviceArray
from spmark.impls.core.problem import Problem
from spmark.impls.formats.hyb import HybLayout, Pieces, lay_out, partition_columns, prepare
from spmark.impls.formats.nearness import near_order
from spmark.impls.kernels.ell_buckets import block_ranges
from spmark.impls.runtime.target import Target
from spmark.impls.runtime.template import C_TYPES, KernelTemplate

_SPAN = 4096
"""Elements that a thread block fills; one block fills a longer ELL row all the same."""
FILL_ELL_BUCKETS = KernelTemplate(
    Path(__file__).parent / "hyb_convert.cu",
    "fill_ell_buckets",
    {"T": ("float", "half"), "threads": (256,)},
    max_registers=40,
)


class HybConverter:
    """A matrix on a target, ready for conversions.

    Parameters
    ----------
    problem : Problem
        Gives the matrix and the dtype of the values.
    target : Target

    Attributes
    ----------
    target : Target
    phases_s : dict
        Seconds spent on the kernel and the host's loops (``compile``), on CSR (``upload``), and on filling all layouts
        so far (``convert``).
    reused_s : float
        Seconds that the last conversion saved since an earlier one had cut or ordered the matrix likewise.

    Raises
    ------
    CompileError
        The kernel does not compile.
    """

    def __init__(self, problem: Problem, target: Target) -> None:
        self._matrix, self.target, self._dtype = problem.matrix, target, problem.dtype
        self._accounts = Built()
        self.phases_s = self._accounts.phases_s
        with self._accounts.phase("compile"):
            prepare()
            threads = int(FILL_ELL_BUCKETS.space["threads"][0])
            (self._kernel,) = target.load([FILL_ELL_BUCKETS.instance(T=C_TYPES[problem.dtype], threads=threads)])
        with self._accounts.phase("upload"):
            self._csr = [target.upload(array) for array in (problem.matrix.indices, problem.values)]
        self._pieces: Pieces | None = None
        self._cut, self._ordered = Built(), Built()
        self.reused_s = 0.0

    @cached_property
    def positions(self) -> NDArray[np.int32]:
        """Places in the order that `spmark.impls.formats.nearness` gives the rows."""
        with self._ordered.phase("convert"):
            return near_order(self._matrix).positions

    def convert(
        self,
        c: int,
        max_width: int,
        order: str = "width",
        thirds: bool = False,
        tail_in_last: bool = False,
    ) -> tuple[HybLayout, list[DeviceArray]]:
        """Convert to hyb(c, k).

        Parameters
        ----------
        c : int
            Partitions; the pieces of the last c are kept, since a search goes through k for one c.
        max_width : int
            2^k.
        order : str
            With ``near`` the rows of a bucket stand in the order of `positions` instead of A's.
        thirds : bool
            Whether widths of 24, 48, 96, ... stand between the powers of two.
        tail_in_last : bool
            Whether the rest of a folded row stays in the last bucket.

        Returns
        -------
        layout : HybLayout
            On the host.
        arrays : list of device arrays
            Indices (stored,) int32 and values (stored,) of the problem's dtype.

        Raises
        ------
        ValueError
            ``max_width`` is not a power of two, or ``c`` is below 1.
        BuildError
            More than 2^31 - 1 elements would be stored.
        """
        near = order == "near"
        self.reused_s = self._ordered.phases_s.get("convert", 0.0) if near else 0.0
        positions = self.positions if near else None
        with self._accounts.phase("convert"):
            if self._pieces is None or self._pieces.partitions != c:
                self._cut = Built()
                with self._cut.phase("convert"):
                    self._pieces = partition_columns(self._matrix, c)
            else:
                self.reused_s += self._cut.phases_s["convert"]
            pieces = self._pieces if positions is None else self._pieces.in_order(positions)
            layout = lay_out(pieces, [max_width] * c, tail_in_last, thirds)
        return layout, self.fill(layout)

    def fill(self, layout: HybLayout) -> list[DeviceArray]:
        """Fill any layout of the matrix with elements, also a layout whose partitions have widths of their own.

        Returns
        -------
        list of device arrays
            As `convert`.
        """
        with self._accounts.phase("convert"):
            ranges = block_ranges(layout, 1, _SPAN)
            places = [self.target.upload(array) for array in (ranges, layout.starts, layout.lengths)]
            arrays = [self.target.empty((layout.stored,), kind) for kind in (np.int32, self._dtype.numpy)]
            self._kernel.launch((ranges.shape[0], 1, 1), (*places, *self._csr, *arrays))
            self.target.synchronize()
        return arrays
