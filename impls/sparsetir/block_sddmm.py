"""SDDMM over BSR blocks on the matrix unit as a family: blocks and schedule.

Ye et al., ASPLOS 2023, section 4.3.1: multi-head attention as batched SDDMM over BSR. Here heads are diagonal blocks of
one matrix, so that the code needs no notion of a head.
"""

from __future__ import annotations

from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Problem
from spmark.impls.formats.bsr import BsrFormat
from spmark.impls.kernels.block_sddmm import BLOCK_SDDMM, BlockSddmmPlan
from spmark.impls.kernels.family import Axes, Build, KernelFamily, OneFormat, taken_apart
from spmark.impls.runtime.target import Target

SDDMM_BLOCKS = (16, 32)
_MIDDLE = {"block": SDDMM_BLOCKS[0], "units": 4, "threads": 128}
_THREADS = (128, 256)


def _axes(problem: Problem, pinned: Config) -> Axes:
    # Kernels with loads of less than 16 bytes are compiled for one size of thread block.
    threads = _THREADS if problem.width % 8 == 0 else _THREADS[:1]
    return {"block": SDDMM_BLOCKS, "units": (1, 2, 4, 8, 16), "threads": threads}


def _opened(problem: Problem, target: Target) -> Build:
    blocks = OneFormat(
        lambda form: BsrFormat.from_csr(problem.matrix, form["block"], form["block"]),
        lambda held, schedule, _: BlockSddmmPlan(problem, target, held, {}, **schedule),
    )
    return lambda config: blocks.plan(*taken_apart(config, ("block",)))


BLOCK_FAMILY = KernelFamily(
    mark="units",
    templates=(BLOCK_SDDMM,),
    axes=_axes,
    opened=_opened,
    default=lambda problem, pinned: {**_MIDDLE, **pinned},
)
