"""SDDMM over non-zeros in CSR order as two families: a group for a few non-zeros, or for a run with X in registers."""

from __future__ import annotations

from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Problem
from spmark.impls.kernels.family import Axes, Build, KernelFamily, tiles_of
from spmark.impls.kernels.sddmm import SDDMM_CSR
from spmark.impls.kernels.sddmm_runs import SDDMM_RUNS, run_tiles, sddmm_kernel, sddmm_plan
from spmark.impls.runtime.target import Target
from spmark.impls.runtime.template import loads_of

RUNS = (2, 4, 8, 16, 32)
"""Non-zeros of a group that keeps a row of X."""


def csr_tiles(problem: Problem) -> list[Config]:
    """List loads and lanes: the two widest loads that divide J, and the lanes that J fills."""
    loads = loads_of(problem.width, 16 // problem.dtype.itemsize)[:2]
    tiles = tiles_of(problem.width, loads, (8, 16, 32))
    return [{"vector": tile["vector"], "lanes": tile["lanes"]} for tile in tiles]


def _csr_axes(problem: Problem, pinned: Config) -> Axes:
    """Give the space of Ye et al., "SparseTIR", ASPLOS 2023, section 4.2.2, but for groups of a block."""
    return {"tile": csr_tiles(problem), "batch": (2, 4)}


def _csr_default(problem: Problem, pinned: Config) -> Config:
    return {**csr_tiles(problem)[-1], "batch": 4, **pinned}


def _opened(problem: Problem, target: Target) -> Build:
    return lambda config: sddmm_plan(problem, target, {}, config)


RUNS_SDDMM = KernelFamily(
    mark="run",
    templates=(SDDMM_RUNS,),
    axes=lambda problem, _: {
        "tile": run_tiles(problem.width, problem.dtype),
        "run": RUNS,
    },
    opened=_opened,
    kernel=sddmm_kernel,
)
CSR_SDDMM = KernelFamily(
    mark="batch",
    templates=(SDDMM_CSR,),
    axes=_csr_axes,
    default=_csr_default,
    opened=_opened,
    kernel=sddmm_kernel,
)
