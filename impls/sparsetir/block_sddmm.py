"""SDDMM over BSR blocks on the matrix unit: which blocks and which schedule, measured on the device.

Ye et al., ASPLOS 2023, section 4.3.1: multi-head attention as batched SDDMM over BSR. Heads are diagonal blocks of one
matrix here, so nothing knows of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from time import perf_counter
from typing import Any

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.problem import Problem
from spmark.impls.formats.bsr import BsrFormat
from spmark.impls.kernels.block_sddmm import BlockSddmmPlan
from spmark.impls.runtime.target import open_target
from spmark.impls.sparsetir.search import Remembered, Tuner, TuningCache, check_best, describe

BLOCKS = (16, 32)
_MIDDLE = {"block": BLOCKS[0], "units": 4, "threads": 128}
_UNITS = (1, 2, 4, 8, 16)
_THREADS = (128, 256)


def build_block_sddmm(
    problem: Problem, device: DeviceSpec, pinned: Mapping[str, Any], tuned: bool = True
) -> BlockSddmmPlan:
    """Search where there is something to search and a device to measure on, then convert and upload.

    Parameters
    ----------
    problem : Problem
        SDDMM in float16.
    device : DeviceSpec
    pinned : mapping
        Any of ``block`` (`BLOCKS`), ``units`` and ``threads``, which are then not searched.
    tuned : bool
        Otherwise the middle of the space is taken for what is not pinned.

    Raises
    ------
    BuildError
        No candidate could be built; carries the reasons.
    """
    if not tuned or device.kind is not DeviceKind.CUDA or problem.matrix.nnz == 0:
        return _plan(problem, device, {**_MIDDLE, **pinned}, {})
    # The name keeps what is found apart from the two-stage kernel's.
    cache = TuningCache(problem, device.name, {"form": BsrFormat.name, **pinned})
    formats: dict[int, BsrFormat] = {}
    found = cache.read()
    if found is None:
        found = _search(problem, device, pinned, formats)
        cache.write(found)
    formats.clear()  # the plan tells what its own conversion costs
    plan = _plan(problem, device, found.config, formats)
    plan.phases_s["search"] = found.search_s
    plan.search = describe(found.seen)
    return plan


def candidates(problem: Problem, pinned: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List every config of the space that agrees with ``pinned``."""
    # Loads of less than 16 bytes are compiled for one block size of the launch only.
    threads = _THREADS if problem.width % 8 == 0 else _THREADS[:1]
    space = {"block": BLOCKS, "units": _UNITS, "threads": threads}
    space |= {name: (value,) for name, value in pinned.items()}
    return [dict(zip(space, values, strict=True)) for values in product(*space.values())]


def _search(
    problem: Problem, device: DeviceSpec, pinned: Mapping[str, Any], formats: dict[int, BsrFormat]
) -> Remembered:
    from spmark.impls.kernels.trial import Trial

    started = perf_counter()
    trial = Trial(problem, device)
    tuner = Tuner(lambda config: trial.samples_us(_plan(problem, device, config, formats)))
    best = min(candidates(problem, pinned), key=tuner.time_us)
    check_best(best, tuner)
    return Remembered(best, perf_counter() - started, tuple(tuner.seen.values()))


def _plan(
    problem: Problem, device: DeviceSpec, config: Mapping[str, Any], formats: dict[int, BsrFormat]
) -> BlockSddmmPlan:
    """Build one config; ``formats`` keeps what has been converted by block size."""
    schedule = dict(config)
    block = schedule.pop("block")
    started = perf_counter()
    if block not in formats:
        formats[block] = BsrFormat.from_csr(problem.matrix, block, block)
    convert_s = perf_counter() - started
    plan = BlockSddmmPlan(problem, open_target(device), formats[block], {}, **schedule)
    plan.phases_s["convert"] += convert_s
    return plan
