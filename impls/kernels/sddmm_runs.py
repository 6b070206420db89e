"""The launcher of SDDMM over runs of non-zeros, the tiles worth trying for a width, and the kernel of a schedule."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

from spmark.impls.core.errors import BuildError
from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import DType, Problem
from spmark.impls.kernels.family import KernelFamily
from spmark.impls.kernels.sddmm import SddmmPlan, csr_tiles, sddmm_instance
from spmark.impls.runtime.target import Target
from spmark.impls.runtime.template import C_TYPES, Instance, KernelTemplate, TemplateValue, widest_aligned

_LOAD_BYTES = 16
"""Bytes of the widest load."""
_THREADS = 128


SDDMM_RUNS = KernelTemplate(
    Path(__file__).parent / "sddmm_runs.cu",
    "sddmm_runs",
    {
        "T": ("float", "half"),
        "vector": (1, 2, 4, 8),
        "vectors": (1, 2, 4),
        "lanes": (4, 8, 16, 32),
        "batch": (2, 4, 8),
        "parts": (1, 2),
        "whole": (False, True),
        "early": (False, True),
        "threads": (_THREADS,),
    },
    max_registers=128,
    max_spill_bytes=8,  # where the compiler for sm_80 stops at 80 registers
)
LANES = tuple(map(int, SDDMM_RUNS.space["lanes"]))
RUNS = (2, 4, 8, 16, 32)
"""Non-zeros of a group."""
MANY = 100_000
"""Non-zeros above which longer runs leave enough groups."""
_CUTS = {1: ((1, 1),), 2: ((2, 1),), 4: ((4, 1), (2, 2)), 8: ((4, 2),)}
"""Loads of a row in a lane, as (vectors, parts)."""


def run_tiles(width: int, dtype: DType) -> list[dict[str, Any]]:
    """List tiles ``vector, vectors, lanes, batch, parts, early`` that hold a row of X in registers; few or none.

    Loads are the widest that divide J. Tiles that would leave half of their lanes idle are left out. The list is empty
    where a row of X needs more than 32 elements a lane.
    """
    vector = widest_aligned(width, dtype)
    offered = []
    for lanes in LANES:
        if lanes == LANES[0] or vector * lanes < 2 * width:
            cuts = next((cut for count, cut in _CUTS.items() if count * vector * lanes >= width), ())
            for (vectors, parts), batch, early in product(cuts, (8, 4, 2), (False, True)):
                cut = {"vectors": vectors, "lanes": lanes, "batch": batch, "parts": parts, "early": early}
                offered.append({"vector": vector, **cut})
    return [tile for tile in offered if is_offered(width, dtype, tile)]


def is_offered(width: int, dtype: DType, schedule: Mapping[str, Any]) -> bool:
    """Tell whether there is a kernel for a schedule; its ``run`` does not matter."""
    return SDDMM_RUNS.has(_values(width, dtype, schedule))


def _columns(schedule: Mapping[str, Any]) -> int:
    return int(schedule["vector"] * schedule["vectors"] * schedule["lanes"] * schedule["parts"])


def _values(width: int, dtype: DType, schedule: Mapping[str, Any]) -> dict[str, TemplateValue]:
    tile = {name: value for name, value in schedule.items() if name != "run"}
    whole = _columns(tile) == width and tile["vector"] * dtype.itemsize == _LOAD_BYTES
    return {"T": C_TYPES[dtype], **tile, "whole": whole, "threads": _THREADS}


def sddmm_kernel(problem: Problem, schedule: Mapping[str, Any]) -> Instance:
    """Give the kernel of a schedule: of `SDDMM_RUNS` where it has a ``run``, else of `SDDMM_CSR`.

    Raises
    ------
    BuildError
        There is no such kernel, or it would compute the schedule wrongly: a row of X does not fit, loads would be
        misaligned, or a group would have nothing to do.
    """
    if "run" not in schedule:
        return sddmm_instance(problem, schedule)
    vector, columns = schedule["vector"], _columns(schedule)
    if columns < problem.width or problem.width % vector:
        raise BuildError(
            f"sddmm_runs: expected loads that divide J = {problem.width} and a tile of as many columns, "
            f"found loads of {vector} and {columns} columns: take more vectors, lanes or parts"
        )
    if schedule["run"] < 1:
        raise BuildError(f"sddmm_runs: expected a run of at least 1 non-zero, found {schedule['run']}")
    return SDDMM_RUNS.instance(**_values(problem.width, problem.dtype, schedule))


def sddmm_plan(problem: Problem, target: Target, config: Config, schedule: Mapping[str, Any]) -> SddmmPlan:
    """Build the plan of a schedule: with a ``run`` by `SDDMM_RUNS`, rows of X in registers, else by `SDDMM_CSR`.

    A schedule with a run has:

    - ``vector, vectors, lanes``: elements of a load, loads side by side in a lane, threads of a group;
    - ``batch``: rows of Y that are on their way together;
    - ``parts``: turns in which a batch is taken: ``vector vectors lanes parts`` is at least J;
    - ``early``: whether rows of X that begin within a batch are loaded with the batch's rows of Y, which may pay for
      short rows;
    - ``run``: consecutive non-zeros of a group.
    """
    return SddmmPlan(problem, target, config, sddmm_kernel(problem, schedule), **schedule)


def _default(problem: Problem, pinned: Config) -> Config:
    """Take one load of a row where 16 lanes hold it, else two loads of halves or four of floats; no device is asked.

    Such tiles were the best of those tried on most of the SDDMM records of an H200; impls/auto/README.md has shares.
    Where no tile holds a row of X, the default is that of `CSR_SDDMM`.
    """
    tiles = run_tiles(problem.width, problem.dtype)
    if not tiles:
        return {**csr_tiles(problem.width, problem.dtype)[-1], "batch": 4}
    loads = -(-problem.width // tiles[0]["vector"])
    vectors, batch = (1, 4) if loads <= 16 else (2, 4) if problem.dtype is DType.FLOAT16 else (4, 2)
    wanted = {"vectors": vectors, "batch": batch, "parts": 1, "early": vectors == 1}
    alike = [sum(tile[name] == value for name, value in wanted.items()) for tile in tiles]
    run = 8 if problem.matrix.nnz > MANY else 4
    return {**tiles[alike.index(max(alike))], "run": run, **pinned}


RUNS_SDDMM = KernelFamily(
    mark="run",  # the other family's configs have a batch, too: in a race this family stands first
    templates=(SDDMM_RUNS,),
    axes=lambda problem, _: {"tile": run_tiles(problem.width, problem.dtype), "run": RUNS},
    opened=lambda problem, target: lambda config: sddmm_plan(problem, target, {}, config),
    default=_default,
    kernel=sddmm_kernel,
)
