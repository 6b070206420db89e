"""Fused grids: every block of every body runs once as itself, and what does not fit the kernel is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from compilers import needs_compilers

from spmark.impls.core.errors import BuildError
from spmark.impls.runtime.compile import compile_kernel
from spmark.impls.runtime.device import find
from spmark.impls.runtime.fusion import Share, fused
from spmark.impls.runtime.target import Target, open_target
from spmark.impls.runtime.template import KernelTemplate

SOURCE = Path(__file__).parent / "kernels" / "fused.cu"
INSTANCE = KernelTemplate(SOURCE, "mark", {"threads": (32,)}).instance(threads=32)


@pytest.fixture(scope="module")
def target() -> Target:
    return open_target(find("host-simt"))


def share(items: int, tiles: int, dtype: str = "int32") -> Share:
    return Share(items, tiles, (np.zeros(max(items * tiles, 1), dtype),))


def run(target: Target, *shares: Share) -> np.ndarray:
    last = np.full(1, -1, np.int32)
    grid, args = fused(*shares)
    (kernel,) = target.load([INSTANCE])
    kernel.launch(grid, (np.int32(100), *args, last))
    return last


def test_every_block_runs_once_as_its_body(target: Target) -> None:
    first, second, third = share(3, 4), share(7, 1), share(5, 2, "float32")
    last = run(target, first, second, third)
    assert first.arrays[0].tolist() == [100 + 31] * 12
    assert second.arrays[0].tolist() == [62] * 7
    assert third.arrays[0].tolist() == [2.0] * 5 + [0.0] * 5
    assert last.tolist() == [12 + 7 + 10 - 1]


def test_a_share_of_nothing_launches_nothing(target: Target) -> None:
    first, second, third = share(0, 4), share(3, 0), share(0, 0, "float32")
    assert run(target, first, second, third).tolist() == [-1]
    assert not second.arrays[0].any()


@needs_compilers
def test_a_fused_kernel_compiles_like_any_other() -> None:
    binary = compile_kernel(SOURCE, INSTANCE.expression, "sm_90")
    assert binary.shared_bytes == 64 * 8, "as much as the greediest body"


def test_more_blocks_than_a_grid_has_are_refused() -> None:
    with pytest.raises(BuildError, match="at most 2,147,483,647 thread blocks"):
        fused(share(1, 1), Share(1 << 16, 1 << 15, (np.zeros(1, np.int32),)))
