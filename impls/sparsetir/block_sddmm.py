"""SDDMM over BSR blocks on the matrix unit: the search for blocks and schedule, measured on the device.

Ye et al., ASPLOS 2023, section 4.3.1: multi-head attention as batched SDDMM over BSR. Here heads are diagonal blocks of
one matrix, so that the code needs no notion of a head.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Built, Config, Search
from spmark.impls.core.problem import Problem
from spmark.impls.formats.bsr import BsrFormat
from spmark.impls.kernels.block_sddmm import BlockSddmmPlan
from spmark.impls.runtime.target import open_target
from spmark.impls.tuning.cache import PlanCache, searched
from spmark.impls.tuning.race import Race
from spmark.impls.tuning.space import Axis, Space
from spmark.impls.tuning.strategies import exhaustive

BLOCKS = (16, 32)
_MIDDLE = {"block": BLOCKS[0], "units": 4, "threads": 128}
_UNITS = (1, 2, 4, 8, 16)
_THREADS = (128, 256)


def build_block_sddmm(
    problem: Problem, device: DeviceSpec, pinned: Mapping[str, Any], tuned: bool = True
) -> BlockSddmmPlan:
    """Search where several candidates and a device to measure on exist, then convert and upload.

    Parameters
    ----------
    problem : Problem
        SDDMM in float16.
    device : DeviceSpec
    pinned : mapping
        Any of ``block`` (`BLOCKS`), ``units`` and ``threads``, which are then not searched.
    tuned : bool
        Otherwise tunables that are not pinned take values from the middle of the space.

    Raises
    ------
    BuildError
        No candidate could be built; the error carries the reasons.
    """
    if not tuned or device.kind is not DeviceKind.CUDA or problem.matrix.nnz == 0:
        return _plan(problem, device, {**_MIDDLE, **pinned}, {})
    # The name keeps this search apart from the two-stage kernel's.
    cache = PlanCache("sparsetir", problem, device, {"form": BsrFormat.name, **pinned})
    kept = searched(cache, lambda: _search(problem, device, pinned), space_of(problem, pinned).__contains__)
    plan = _plan(problem, device, kept.config, {})
    plan.phases_s |= kept.phases_s
    plan.search = kept.search
    return plan


def space_of(problem: Problem, pinned: Mapping[str, Any]) -> Space:
    """Give the space of blocks and schedules that agrees with ``pinned``."""
    # Kernels with loads of less than 16 bytes are compiled for one size of thread block.
    threads = _THREADS if problem.width % 8 == 0 else _THREADS[:1]
    values = {"block": BLOCKS, "units": _UNITS, "threads": threads}
    values |= {name: (value,) for name, value in pinned.items()}
    return Space(tuple(Axis.of(name, each) for name, each in values.items()))


def _search(problem: Problem, device: DeviceSpec, pinned: Mapping[str, Any]) -> tuple[Config, Search]:
    from spmark.impls.tuning.gpu import PlanTimer

    formats: dict[int, BsrFormat] = {}
    race = Race(lambda config: _plan(problem, device, config, formats), PlanTimer(problem, device))
    exhaustive(race, space_of(problem, pinned).configs())
    config, _ = race.finish()
    return config, race.describe()


def _plan(
    problem: Problem, device: DeviceSpec, config: Mapping[str, Any], formats: dict[int, BsrFormat]
) -> BlockSddmmPlan:
    """Build one config; ``formats`` keeps the converted matrix by block size."""
    schedule = dict(config)
    block = schedule.pop("block")
    own = Built()
    with own.phase("convert"):
        if block not in formats:
            formats[block] = BsrFormat.from_csr(problem.matrix, block, block)
    plan = BlockSddmmPlan(problem, open_target(device), formats[block], {}, **schedule)
    plan.charge(own.phases_s)
    return plan
