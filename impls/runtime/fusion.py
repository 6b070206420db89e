"""Horizontal fusion: several bodies in one compute grid, each with a range of its thread blocks.

A fused kernel is an ordinary template whose source includes the bodies and calls ``run_fused`` of
``spmark/fusion.cuh``. Code that walks a table of kernels (to compile for every architecture, to run on the host) thus
meets fused kernels too. By convention the parameters are scalars that all bodies share, then items, tiles and arrays
of each body, then more that all bodies share.

After Li et al., "Automatic Horizontal Fusion for GPU Kernels", CGO 2022.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from spmark.impls.core.errors import BuildError
from spmark.impls.core.interfaces import DeviceArray
from spmark.impls.runtime.target import MAX_GRID, Grid


class Share(NamedTuple):
    """The work of one body: a thread block for every item and tile."""

    items: int
    tiles: int
    arrays: tuple[DeviceArray, ...]


def fused(*shares: Share) -> tuple[Grid, list[Any]]:
    """Give the grid of a fused kernel, and its arguments from the first body's to the last body's.

    Parameters
    ----------
    *shares : Share
        Of every body, in the order of the kernel's parameters: long work first. A body without work has no items.

    Raises
    ------
    BuildError
        The grid would be too large.
    """
    blocks = sum(share.items * share.tiles for share in shares)
    if blocks > MAX_GRID[0]:
        raise BuildError(f"expected at most {MAX_GRID[0]:,} thread blocks of a fused grid, found {blocks:,}")
    return (blocks, 1, 1), [
        arg for share in shares for arg in (np.int32(share.items), np.int32(share.tiles), *share.arrays)
    ]
