"""Measure the cost model's constants on a GPU (algorithm 1), with the kernels that run the plans.

Fang, Shen, Wang and Chen, "STile", SIGMOD 2024, section 3.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import product
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.enums import MEASURED_TYPES
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.formats.tiles import GROUP
from spmark.impls.kernels.ell_buckets import EllBucketsPlan
from spmark.impls.kernels.sddmm import SddmmPlan
from spmark.impls.kernels.tile_sddmm import TileSddmmPlan
from spmark.impls.kernels.tile_spmm import HEIGHTS, TileSpmmPlan
from spmark.impls.kernels.tile_tasks import ALONE
from spmark.impls.runtime.cudalab import CudaStopwatch
from spmark.impls.runtime.device import versions
from spmark.impls.runtime.target import open_target
from spmark.impls.runtime.withcupy import cupy
from spmark.impls.stile.calibration import BlockCost, Calibration, Line
from spmark.impls.stile.schedule import block_tiles, ell_tiles, middle, run_schedules, tile_schedules
from spmark.studies.stile import samples
from spmark.studies.stile.fitting import Fitted, Measured, fitted

TILES_PER_SM = 50
"""Copies of a tile for each multiprocessor; a tile's cost is the time of all copies, over this number."""
_WORK = 16
_WARMUPS, _SAMPLES = 1, 9


class Laboratory:
    """Tiles on the present GPU.

    Parameters
    ----------
    spec : DeviceSpec
        With measured rates.
    """

    def __init__(self, spec: DeviceSpec) -> None:
        self.spec, self._target, self._stopwatch = spec, open_target(spec), CudaStopwatch(spec)
        self.copies = TILES_PER_SM * spec.num_sms

    def tile_ms(self, problem: Problem, plan: Plan) -> float:
        """Give the milliseconds that one of `copies` tiles takes a multiprocessor."""
        # Operands may hold anything but NaN and infinity.
        operands = [cupy.full(shape, 0.75, problem.dtype.numpy) for shape in problem.operand_shapes]
        out = cupy.empty(problem.out_shape, problem.dtype.numpy)
        runs = [lambda: plan.run(operands, out)]
        self._stopwatch.batch(runs, _WARMUPS, cold=True)
        return float(np.median(self._stopwatch.batch(runs, _SAMPLES, cold=True))) * 1e-3 / TILES_PER_SM

    def ell_ms(self, part: int, tile: samples.Pattern, dtype: DType, shared: bool) -> float:
        """Measure an ELL tile with ``part`` columns of B."""
        tiles = samples.ell_copies(tile, self.copies, shared)
        problem = Problem(Op.SPMM, _nothing(tiles.shape), part, dtype)
        schedule = {**middle(ell_tiles(part, dtype)[0]), "work": _WORK}
        arrays = [self._target.upload(a) for a in (tiles.indices, tiles.values.astype(dtype.numpy))]
        return self.tile_ms(problem, EllBucketsPlan(problem, self._target, tiles, {}, arrays=arrays, **schedule))

    def blocks(self, dtype: DType) -> Iterator[BlockCost]:
        """Measure SpMM's block tiles of every height that has a kernel, by one warp or a whole thread block."""
        heights = HEIGHTS if dtype is DType.FLOAT16 else HEIGHTS[:1]
        for height, cols in product(heights, samples.BLOCK_COLS):
            arrays: Sequence[Any] = ()
            for part in samples.SPMM_PARTS:
                best_ms = []
                for shared in (False, True):
                    tiles, times = samples.block_copies(cols, self.copies, shared, height), []
                    problem = Problem(Op.SPMM, _nothing(tiles.shape), part, dtype)
                    for alone in {ALONE[0], ALONE[-1] if cols > GROUP * ALONE[0] else ALONE[0]}:
                        schedule = {**middle(block_tiles(part, dtype)[0]), "alone": alone}
                        plan = TileSpmmPlan(problem, self._target, tiles, {}, arrays=arrays, **schedule)
                        arrays = plan.arrays
                        times.append(self.tile_ms(problem, plan))
                    best_ms.append(min(times))
                yield BlockCost(height, cols, part, best_ms[0], max(best_ms))

    def sddmm_blocks(self) -> Iterator[BlockCost]:
        """Measure SDDMM's block tile in float16 for slices of J."""
        matrix, tiles = samples.sddmm_block_copies(self.copies)
        for part in samples.SDDMM_PARTS:
            problem = Problem(Op.SDDMM, matrix, part, DType.FLOAT16)
            plan = TileSddmmPlan(problem, self._target, tiles, {}, **tile_schedules(part)[0])
            cost = self.tile_ms(problem, plan)
            yield BlockCost(samples.HEIGHT, GROUP, part, cost, cost)

    def fit_spmm(self, dtype: DType) -> Fitted:
        """Measure and fit SpMM."""
        tiles = samples.ell_tiles(samples.SPMM_PARTS)
        light = [
            (one.tile(part), *(self.ell_ms(part, one, dtype, way) for way in (False, True))) for part, one in tiles
        ]
        return self._fitted(Op.SPMM, dtype, self.blocks(dtype), light)

    def fit_sddmm(self, dtype: DType) -> Fitted:
        """Measure and fit SDDMM; float32 has no blocks."""
        light = []
        for tile in samples.run_tiles():
            matrix = samples.run_copies(tile, self.copies)
            for width in samples.SDDMM_WIDTHS:
                problem = Problem(Op.SDDMM, matrix, width, dtype)
                plan = SddmmPlan(problem, self._target, {}, **run_schedules(width, dtype)[0])
                light.append((tile.tile(width), self.tile_ms(problem, plan), 0.0))
        return self._fitted(Op.SDDMM, dtype, self.sddmm_blocks() if dtype is DType.FLOAT16 else (), light)

    def _fitted(self, op: Op, dtype: DType, blocks: Iterable[BlockCost], light: Iterable[Any]) -> Fitted:
        peak = self.spec.fma_flops_per_s / self.spec.read_bytes_per_s
        before = Line(0.0, 0.0, 0.0, 1.0, peak)
        return fitted(
            Calibration(self.spec.name, self.spec.num_sms, op, dtype, tuple(blocks), before), Measured.of(light)
        )


def calibrate(spec: DeviceSpec) -> tuple[DeviceSpec, list[Fitted]]:
    """Measure everything; about a minute.

    Parameters
    ----------
    spec : DeviceSpec
        Spec of the present GPU, with measured rates.

    Returns
    -------
    spec : DeviceSpec
        With STile's tables, the date of measuring and the versions of the software.
    fitted : list of Fitted
        By operator and dtype.
    """
    laboratory, tables = Laboratory(spec), dict(spec.tables)
    fits = [fit(dtype) for fit in (laboratory.fit_spmm, laboratory.fit_sddmm) for dtype in MEASURED_TYPES]
    for one in fits:
        tables |= one.tables()
    driver, cuda = versions(spec)
    how = f"spmark.studies.stile.gpu, {TILES_PER_SM} copies of a tile for each multiprocessor"
    made = {"driver": driver, "cuda": cuda, "on": f"{datetime.now(UTC):%Y-%m-%d}", "by": how}
    return spec.model_copy(update={"tables": tables, "calibrated_with": made}), fits


def _nothing(shape: tuple[int, int]) -> Csr:
    """Give a matrix without non-zeros: the plan takes its tiles ready-made and reads only the matrix's shape."""
    return Csr.of(csr_array(shape, dtype=np.float32))
