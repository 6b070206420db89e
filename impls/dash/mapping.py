"""The configuration mapper's explicit half: every platform's splits and loop order as the same 53 numbers.

DASH (COGNATE), section 3.3. Letters of loops are those of the paper's SpMM: i runs over rows of A, j over columns of A,
and k over the dense width. SDDMM has the same letters here. Platforms give their loops in these letters
(`spmark.impls.tuning.platform.CommonLoops`).

- pi of the CPU: loops i1, i2, j1, j2, k1, k2 gain k3 of one iteration, directly inside of k2.
- pi of the GPU: loops i1, i2, j, k1, k2, k3 gain j' directly inside of j. Here j is j1 and j' is j2. The split of j is
  the number of column partitions, which the paper's GPU does not have: without partitions it is 1.
- phi of the accelerator: tiles and barrier become splits and an order of the CPU's loops, which then pass the CPU's pi.
  The accelerator's platform applies phi.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from spmark.impls.tuning.platform import CommonLoops

LOOPS: Final = ("i1", "i2", "j1", "j2", "k1", "k2", "k3")
"""The common loops; columns of the permutation."""
CPU_LOOPS: Final = ("i1", "i2", "j1", "j2", "k1", "k2")
CUDA_LOOPS: Final = ("i1", "i2", "j", "k1", "k2", "k3")
SPLITS: Final = 4
"""Splits of i, j and k, and the second split of k, which only the GPU has."""
COMMON_SIZE: Final = len(LOOPS) ** 2 + SPLITS


def in_common(loops: CommonLoops) -> tuple[str, ...]:
    """Map a platform's order of loops by pi; the loops of the order tell which one applies.

    Returns
    -------
    tuple of str
        `LOOPS`, the outermost first.

    Raises
    ------
    ValueError
        A split is below 1, or the order is no permutation of `CPU_LOOPS` or `CUDA_LOOPS`.
    """
    if min(*loops.splits, loops.innermost) < 1:
        raise ValueError(f"expected {SPLITS} splits of at least 1, found {(*loops.splits, loops.innermost)}")
    own, outer, inner = (CUDA_LOOPS, "j", "j2") if "k3" in loops.order else (CPU_LOOPS, "k2", "k3")
    if sorted(loops.order) != sorted(own):
        found = ", ".join(loops.order) or "none"
        raise ValueError(f"expected an order of the loops {', '.join(own)}, found {found}")
    place = loops.order.index(outer) + 1
    order = (*loops.order[:place], inner, *loops.order[place:])
    return tuple("j1" if loop == "j" else loop for loop in order)


def vectors(configs: Sequence[CommonLoops]) -> NDArray[np.float32]:
    """Give (n, 53) float32, a row for each config.

    A row has the permutation, place by place with a 1 at the loop that stands there, then log2 of the splits.

    Raises
    ------
    ValueError
        `in_common` raises it.
    """
    places = {loop: place for place, loop in enumerate(LOOPS)}
    loops = np.array([[places[loop] for loop in in_common(config)] for config in configs], np.int64)
    splits = np.array([(*config.splits, config.innermost) for config in configs], np.float32).reshape(-1, SPLITS)
    permutations = np.eye(len(LOOPS), dtype=np.float32)[loops].reshape(-1, len(LOOPS) ** 2)
    return np.concatenate([permutations, np.log2(splits)], axis=1)
