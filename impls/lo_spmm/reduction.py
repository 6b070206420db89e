"""How far the proxies of one search are shortened, so that all of them together are assembled in seconds.

Truncating loops by the same proportion keeps the order of tile sizes (LO-SpMM, section 5.1.3). The paper bounds the
length of a loop. The code of all proxies bounds the seconds of a search, and the paper's rule leaves a large layer
millions of instructions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spmark.impls.lo_spmm.constraints import register_cap
from spmark.impls.lo_spmm.kernel import Tile, TileSchedule, UnrolledKernel
from spmark.impls.lo_spmm.proxies import LEAST_INSTRUCTIONS, active_tiles, extent_of, make_proxy
from spmark.impls.lo_spmm.search import TileSpace
from spmark.impls.lo_spmm.tuning import kernel_of, promising

MOST_INSTRUCTIONS = 640_000
"""Loads and products of all proxies of a search: three to four seconds of ptxas on 16 cores. The number is the same on
any machine, so that the result of a search does not depend on its cores."""


@dataclass(frozen=True, eq=False)
class Reduction:
    """The proxies of one problem; a kernel's proxy is the same, whichever of its candidates are asked for."""

    space: TileSpace
    active: Mapping[tuple[int, int, int], Sequence[int]]
    """Tiles side by side on a multiprocessor, of every candidate of a kernel."""
    least_instructions: int
    share: float
    """Share of a tile's columns that every proxy keeps."""

    @classmethod
    def of(
        cls,
        space: TileSpace,
        *,
        least_instructions: int = LEAST_INSTRUCTIONS,
        most_instructions: float = MOST_INSTRUCTIONS,
    ) -> Reduction:
        """Find the share that all kernels that `spmark.impls.lo_spmm.tuning.Chooser.LO_SPMM` compares can keep.

        Parameters
        ----------
        space : TileSpace
            Space of `spmark.impls.lo_spmm.search.explore`.
        least_instructions : int
            Least instructions of a proxy (`spmark.impls.lo_spmm.proxies.extent_of`), before it is shortened.
        most_instructions : float
            Most instructions of all proxies.
        """
        active: dict[tuple[int, int, int], list[int]] = {}
        for size in space.survivors.sizes:
            tiles, registers = space.dealt(size.tile_rows, size.split).nnz.size, _registers(space, kernel_of(size))
            active.setdefault(kernel_of(size), []).append(
                active_tiles(size, tiles, space.problem.width, registers, space.device)
            )
        compared = {kernel_of(size) for size in promising({size: space.cycles(size) for size in space.survivors.sizes})}
        whole = 0.0
        for rows, cpt, split in compared:
            dealt = space.dealt(rows, split)
            extent = extent_of(
                dealt.nnc,
                dealt.nnz,
                _sparsity(space),
                active[rows, cpt, split],
                cpt=cpt,
                least_instructions=least_instructions,
            )
            whole += extent.instructions
        return cls(space, active, least_instructions, min(1.0, most_instructions / max(1.0, whole)))

    @classmethod
    def as_published(cls, space: TileSpace) -> Reduction:
        """Shorten proxies by the paper's rules alone (sections 5.1.2 and 5.1.3)."""
        return cls.of(space, least_instructions=0, most_instructions=math.inf)

    def proxy(
        self, kernel: tuple[int, int, int], tiles: Sequence[Tile], schedule: TileSchedule, warm: bool
    ) -> UnrolledKernel:
        """Make the proxy of a kernel.

        Parameters
        ----------
        kernel : M1, columns of a thread, parts
        tiles : sequence of Tile
            Tiles of the kernel.
        schedule : TileSchedule
        warm : bool
            `spmark.impls.lo_spmm.kernel.UnrolledKernel.warm` of the kernel.
        """
        return make_proxy(
            tiles,
            _sparsity(self.space),
            self.active[kernel],
            width=self.space.problem.width,
            schedule=schedule,
            warm=warm,
            least_instructions=self.least_instructions,
            share=self.share,
        )


def _registers(space: TileSpace, kernel: tuple[int, int, int]) -> int:
    rows, cpt, _ = kernel
    return register_cap(rows, cpt, space.pins.depth(rows, cpt))


def _sparsity(space: TileSpace) -> float:
    matrix = space.problem.matrix
    return 1 - matrix.nnz / (matrix.num_rows * matrix.num_cols)
