"""The launcher of SDDMM over the non-zeros in CSR order."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import DType, Problem
from spmark.impls.kernels.family import KernelFamily, tiles_of
from spmark.impls.runtime.plan import OneLaunchPlan
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import C_TYPES, Instance, KernelTemplate, loads_of

_THREADS = 128
GROUPS = (1, 2, 4, 8)
"""Groups of a block in the space of SparseTIR's paper (section 4.2.2)."""


SDDMM_CSR = KernelTemplate(
    Path(__file__).parent / "sddmm.cu",
    "sddmm_csr",
    {
        "T": ("float", "half"),
        "vector": (1, 2, 4, 8),
        "lanes": (8, 16, 32),
        "batch": (1, 2, 4),
        "threads": (8, 16, 32, 64, 128, 256),
    },
    max_registers=128,
    max_spill_bytes=8,  # ptxas for sm_100 stops at 56 registers
)


def sddmm_instance(problem: Problem, schedule: Mapping[str, Any]) -> Instance:
    """Give the kernel of a schedule: ``vector``, ``lanes``, ``batch``, and optionally ``threads``."""
    return SDDMM_CSR.instance(**{"T": C_TYPES[problem.dtype], "threads": _THREADS, **schedule})


class SddmmPlan(OneLaunchPlan):
    """D = (X Y^T at A's non-zeros), scaled by A where the problem is.

    Parameters
    ----------
    config : mapping
        What `DevicePlan.config` says; the schedule below is part of it.
    instance : Instance, optional
        The kernel of another table for the schedule, which may then have a ``run``: consecutive non-zeros of a group.
    **schedule : int
        Of `sddmm_instance`, named as it is given.
    """

    def __init__(
        self, problem: Problem, target: Target, config: Config, instance: Instance | None = None, **schedule: int
    ) -> None:
        matrix, instance = problem.matrix, instance or sddmm_instance(problem, schedule)
        super().__init__(problem, target, {**config, **schedule}, schedule["vector"] * problem.dtype.itemsize)
        self.stored = matrix.nnz
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


CSR_SDDMM = KernelFamily(
    mark="batch",
    templates=(SDDMM_CSR,),
    axes=lambda problem, _: {"tile": csr_tiles(problem.width, problem.dtype), "batch": (2, 4)},
    opened=lambda problem, target: lambda config: SddmmPlan(problem, target, {}, **config),
    default=lambda problem, pinned: {**csr_tiles(problem.width, problem.dtype)[-1], "batch": 4, **pinned},
    kernel=sddmm_instance,
)
"""The space of Ye et al., "SparseTIR", ASPLOS 2023, section 4.2.2, but for the groups of a block."""
