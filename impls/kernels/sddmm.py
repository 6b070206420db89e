"""The launcher of SDDMM over the non-zeros in CSR order, in batches or in runs that keep a row of X in registers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from spmark.impls.core.errors import BuildError
from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import DType, Problem
from spmark.impls.kernels.family import KernelFamily, tiles_of
from spmark.impls.runtime.plan import OneLaunchPlan
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import (
    C_TYPES,
    ELEMENTS,
    Instance,
    KernelTemplate,
    TemplateValue,
    loads_of,
    widest_aligned,
)

_SOURCE = Path(__file__).parent / "sddmm.cu"
_LOAD_BYTES = 16
"""Bytes of the widest load."""
_THREADS = 128
GROUPS = (1, 2, 4, 8)
"""Groups of a block in the space of SparseTIR's paper (section 4.2.2)."""


SDDMM_CSR = KernelTemplate(
    _SOURCE,
    "sddmm_csr",
    {
        "T": ELEMENTS,
        "vector": (1, 2, 4, 8),
        "lanes": (8, 16, 32),
        "batch": (1, 2, 4),
        "threads": (8, 16, 32, 64, 128, 256),
    },
)


class SddmmPlan(OneLaunchPlan):
    """D = (X Y^T at A's non-zeros), scaled by A where the problem is, by `sddmm_kernel`.

    Parameters
    ----------
    config : mapping
        What `DevicePlan.config` says; the schedule below is part of it.
    **schedule : int
        As of `sddmm_kernel`.
    """

    def __init__(self, problem: Problem, target: Target, config: Config, **schedule: int) -> None:
        matrix, instance = problem.matrix, sddmm_kernel(problem, schedule)
        super().__init__(problem, target, {**config, **schedule}, schedule["vector"] * problem.dtype.itemsize)
        self._load(instance)
        with self.phase("convert"):
            rows = matrix.rows_of_entries()
        run = [schedule["run"]] if "run" in schedule else []
        of_group = schedule.get("run", schedule["batch"])
        grid = (ceil_div(matrix.nnz, instance.threads // schedule["lanes"] * of_group), 1, 1)
        sizes = (matrix.nnz, problem.width, *run, problem.scaled)
        self._arrange(grid, sizes, (rows, matrix.indices, problem.factors))
        self.values = self._args[-1]


def csr_tiles(width: int, dtype: DType) -> list[Config]:
    """List loads and lanes: the two widest loads that divide J, and the lanes that J fills."""
    tiles = tiles_of(width, loads_of(width, 16 // dtype.itemsize)[:2], (8, 16, 32))
    return [{"vector": tile["vector"], "lanes": tile["lanes"]} for tile in tiles]


SDDMM_RUNS = KernelTemplate(
    _SOURCE,
    "sddmm_runs",
    {
        "T": ELEMENTS,
        "vector": (1, 2, 4, 8),
        "vectors": (1, 2, 4),
        "lanes": (4, 8, 16, 32),
        "batch": (2, 4, 8),
        "parts": (1, 2),
        "whole": (False, True),
        "early": (False, True),
        "threads": (_THREADS,),
    },
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
    return [tile for tile in offered if SDDMM_RUNS.has(_values(width, dtype, tile))]


def _columns(schedule: Mapping[str, Any]) -> int:
    return int(schedule["vector"] * schedule["vectors"] * schedule["lanes"] * schedule["parts"])


def _values(width: int, dtype: DType, schedule: Mapping[str, Any]) -> dict[str, TemplateValue]:
    tile = {name: value for name, value in schedule.items() if name != "run"}
    whole = _columns(tile) == width and tile["vector"] * dtype.itemsize == _LOAD_BYTES
    return {"T": C_TYPES[dtype], **tile, "whole": whole, "threads": _THREADS}


def sddmm_kernel(problem: Problem, schedule: Mapping[str, Any]) -> Instance:
    """Give the kernel of a schedule: with a ``run`` `SDDMM_RUNS`, rows of X in registers, else `SDDMM_CSR`.

    A schedule without a run has ``vector``, ``lanes``, ``batch``, and optionally ``threads``. One with a run has:

    - ``vector, vectors, lanes``: elements of a load, loads side by side in a lane, threads of a group;
    - ``batch``: rows of Y that are on their way together;
    - ``parts``: turns in which a batch is taken: ``vector vectors lanes parts`` is at least J;
    - ``early``: whether rows of X that begin within a batch are loaded with the batch's rows of Y, which may pay for
      short rows;
    - ``run``: consecutive non-zeros of a group.

    Raises
    ------
    BuildError
        There is no such kernel, or it would compute the schedule wrongly: a row of X does not fit, loads would be
        misaligned, or a group would have nothing to do.
    """
    if "run" not in schedule:
        return SDDMM_CSR.instance(**{"T": C_TYPES[problem.dtype], "threads": _THREADS, **schedule})
    vector, columns = schedule["vector"], _columns(schedule)
    if columns < problem.width or problem.width % vector:
        raise BuildError(
            f"sddmm_runs: expected loads that divide J = {problem.width} and a tile of as many columns, "
            f"found loads of {vector} and {columns} columns: take more vectors, lanes or parts"
        )
    if schedule["run"] < 1:
        raise BuildError(f"sddmm_runs: expected a run of at least 1 non-zero, found {schedule['run']}")
    return SDDMM_RUNS.instance(**_values(problem.width, problem.dtype, schedule))


def _default(problem: Problem, pinned: Config) -> Config:
    """Take one load of a row where 16 lanes hold it, else two loads of halves or four of floats; no device is asked.

    Such tiles were the best of those tried on most of the SDDMM records of an H200; impls/auto/README.md has shares.
    Where no tile holds a row of X, the default is that of `CSR_SDDMM`.
    """
    tiles = run_tiles(problem.width, problem.dtype)
    if not tiles:
        return {**csr_tiles(problem.width, problem.dtype)[-1], "batch": 4}
    loads = -(-problem.width // tiles[0]["vector"])
    vectors, batch = (1, 4) if loads <= 16 else (2, 4) if problem.dtype.narrow else (4, 2)
    wanted = {"vectors": vectors, "batch": batch, "parts": 1, "early": vectors == 1}
    alike = [sum(tile[name] == value for name, value in wanted.items()) for tile in tiles]
    run = 8 if problem.matrix.nnz > MANY else 4
    return {**tiles[alike.index(max(alike))], "run": run, **pinned}


CSR_SDDMM = KernelFamily(
    mark="batch",
    axes=lambda problem, _: {"tile": csr_tiles(problem.width, problem.dtype), "batch": (2, 4)},
    opened=lambda problem, target: lambda config: SddmmPlan(problem, target, {}, **config),
    default=lambda problem, pinned: {**csr_tiles(problem.width, problem.dtype)[-1], "batch": 4, **pinned},
    kernel=sddmm_kernel,
)
"""The space of Ye et al., "SparseTIR", ASPLOS 2023, section 4.2.2, but for the groups of a block."""
RUNS_SDDMM = replace(
    CSR_SDDMM,
    mark="run",  # the other family's configs have a batch, too: in a race this family stands first
    axes=lambda problem, _: {"tile": run_tiles(problem.width, problem.dtype), "run": RUNS},
    default=_default,
)
