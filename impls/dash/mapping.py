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
from dataclasses import dataclass
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


@dataclass(frozen=True)
class CommonConfig:
    """What all platforms' configs have in common.

    Raises
    ------
    ValueError
        A split is below 1, or the order is no permutation of `LOOPS`.
    """

    splits: tuple[int, int, int, int]
    """Iterations of the inner loop of i, of j and of k; then those of k3. A loop that is not split has 1."""
    order: tuple[str, ...]
    """`LOOPS`, the outermost first."""

    def __post_init__(self) -> None:
        if len(self.splits) != SPLITS or min(self.splits) < 1:
            raise ValueError(f"expected {SPLITS} splits of at least 1, found {self.splits}")
        _check_order(self.order, LOOPS)


def of_cpu(splits: tuple[int, int, int], order: Sequence[str]) -> CommonConfig:
    """Map a CPU's config by pi.

    Parameters
    ----------
    splits : tuple of int
        Iterations of i2, j2 and k2.
    order : sequence of str
        `CPU_LOOPS`, the outermost first.

    Raises
    ------
    ValueError
        A split is below 1, or the order is no permutation of `CPU_LOOPS`.
    """
    _check_order(order, CPU_LOOPS)
    return CommonConfig((*splits, 1), _with_inner(order, "k2", "k3"))


def of_cuda(splits: tuple[int, int, int, int], order: Sequence[str]) -> CommonConfig:
    """Map a GPU's config by pi.

    Parameters
    ----------
    splits : tuple of int
        Iterations of i2; of j, where it is cut into column partitions, else 1; of k2; of k3.
    order : sequence of str
        `CUDA_LOOPS`, the outermost first.

    Raises
    ------
    ValueError
        A split is below 1, or the order is no permutation of `CUDA_LOOPS`.
    """
    _check_order(order, CUDA_LOOPS)
    renamed = ["j1" if loop == "j" else loop for loop in order]
    return CommonConfig(splits, _with_inner(renamed, "j1", "j2"))


def of_loops(loops: CommonLoops) -> CommonConfig:
    """Map what any platform shares with the others: the loops of the order tell which pi applies.

    Raises
    ------
    ValueError
        A split is below 1, or the order is no permutation of `CPU_LOOPS` or `CUDA_LOOPS`.
    """
    if "k3" in loops.order:
        return of_cuda((*loops.splits, loops.innermost), loops.order)
    return of_cpu(loops.splits, loops.order)


def vectors(configs: Sequence[CommonConfig]) -> NDArray[np.float32]:
    """Give (n, 53) float32, a row for each config.

    A row has the permutation, place by place with a 1 at the loop that stands there, then log2 of the splits.
    """
    places = {loop: place for place, loop in enumerate(LOOPS)}
    loops = np.array([[places[loop] for loop in config.order] for config in configs], np.int64).reshape(-1, len(LOOPS))
    splits = np.array([config.splits for config in configs], np.float32).reshape(-1, SPLITS)
    permutations = np.eye(len(LOOPS), dtype=np.float32)[loops].reshape(-1, len(LOOPS) ** 2)
    return np.concatenate([permutations, np.log2(splits)], axis=1)


def _with_inner(order: Sequence[str], outer: str, inner: str) -> tuple[str, ...]:
    """Put the loop ``inner`` directly inside of the loop ``outer``."""
    place = list(order).index(outer) + 1
    return (*order[:place], inner, *order[place:])


def _check_order(order: Sequence[str], loops: tuple[str, ...]) -> None:
    if sorted(order) != sorted(loops):
        raise ValueError(f"expected an order of the loops {', '.join(loops)}, found {', '.join(order) or 'none'}")
