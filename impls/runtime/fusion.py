"""Horizontal fusion: several bodies in one compute grid, each with a range of its thread blocks.

A fused kernel is an ordinary template whose source includes the bodies and calls ``run_fused`` of
``spmark/fusion.cuh``. Code that walks a table of kernels (to compile for every architecture, to run on the host) thus
meets fused kernels too. By convention the parameters are scalars that all bodies share, then items, tiles and arrays
of each body, then more that all bodies share.

After Li et al., "Automatic Horizontal Fusion for GPU Kernels", CGO 2022.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spmark.impls.core.errors import BuildError
from spmark.impls.core.interfaces import DeviceArray
from spmark.impls.runtime.target import MAX_GRID, Target
from spmark.impls.runtime.template import Instance, KernelTemplate


@dataclass(frozen=True)
class Body:
    """A device function that a fused kernel may run."""

    name: str
    arrays: tuple[str, ...]
    """dtype of every array that it takes, in the kernel's order."""


@dataclass(frozen=True, eq=False)
class FusedTemplate(KernelTemplate):
    """A kernel of several bodies of one block size; registers and shared memory are those of the greediest body."""

    bodies: tuple[Body, ...] = ()
    """In the order of the ranges in the grid and of the kernel's parameters: long work first."""


@dataclass(frozen=True)
class Share:
    """The work of one body: a thread block for every item and tile."""

    items: int
    tiles: int
    arrays: tuple[DeviceArray, ...]


class FusedLaunch:
    """A fused kernel with the shares of its bodies; a body without a share gets no blocks.

    Parameters
    ----------
    target : Target
    instance : Instance
        Instance of a `FusedTemplate`.
    shares : mapping
        Shares by the body's name; the arrays are on the target and have the dtypes that the body declares.
    around : sequence of Instance
        Kernels of launches before and after this one, which are compiled beside it.

    Attributes
    ----------
    around : list of Kernel
        In the order given.

    Raises
    ------
    BuildError
        A share names a body that the template lacks, or its arrays have other dtypes than the body's. The grid would be
        too large. The kernel does not compile.
    """

    def __init__(
        self, target: Target, instance: Instance, shares: Mapping[str, Share], around: Sequence[Instance] = ()
    ) -> None:
        template = instance.template
        assert isinstance(template, FusedTemplate)
        where = f"{template.source}: {template.name}"
        if unknown := sorted(shares.keys() - {body.name for body in template.bodies}):
            names = ", ".join(body.name for body in template.bodies)
            raise BuildError(f"{where}: expected bodies out of {names}, found {', '.join(unknown)}")
        args: list[Any] = []
        blocks = 0
        for body in template.bodies:
            share = shares.get(body.name) or Share(0, 0, tuple(target.empty((0,), dtype) for dtype in body.arrays))
            dtypes = tuple(str(array.dtype) for array in share.arrays)
            if dtypes != body.arrays:
                raise BuildError(f"{where}: expected arrays {body.arrays} for {body.name}, found {dtypes}")
            args += [np.int32(share.items), np.int32(share.tiles), *share.arrays]
            blocks += share.items * share.tiles
        if blocks > MAX_GRID[0]:
            raise BuildError(f"{where}: expected at most {MAX_GRID[0]:,} thread blocks, found {blocks:,}")
        self._kernel, *self.around = target.load([instance, *around])
        self._args, self.blocks = tuple(args), blocks

    def enqueue(self, before: Sequence[Any], after: Sequence[Any], overlap: bool = False) -> None:
        """Launch on the current stream.

        Parameters
        ----------
        before, after : sequence
            Arguments that all bodies share: those before the first body's and those after the last body's.
        overlap : bool
            As of `spmark.impls.runtime.target.Kernel.launch`.
        """
        self._kernel.launch((self.blocks, 1, 1), (*before, *self._args, *after), overlap=overlap)
