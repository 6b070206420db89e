"""LO-SpMM: the weights are constants of a kernel without loops.

Lin, Sun, Shi, Zhang, Yu, Wang, Yao and Sun, "LO-SpMM: Low-cost Search for High-performance SpMM Kernels on GPUs", ACM
TACO 21(4), 2024.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import DeviceArray, Plan
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.kernels.zeroing import ZERO_ROWS, RowZeroing
from spmark.impls.lo_spmm.assemble import assemble
from spmark.impls.lo_spmm.constraints import register_cap
from spmark.impls.lo_spmm.emit_cuda import cuda_source
from spmark.impls.lo_spmm.kernel import NAME, Schedule, UnrolledKernel, make_tiles
from spmark.impls.lo_spmm.reorder import Order
from spmark.impls.lo_spmm.search import Found, Pins, search
from spmark.impls.runtime.compile import cache_folder
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import MAX_GRID, Kernel, Target, ceil_div, open_target
from spmark.impls.runtime.template import KernelTemplate

_MOST_NNZ = {DeviceKind.CUDA: 1 << 20, DeviceKind.HOST_SIMT: 1 << 14}
"""Beyond it compiling takes minutes (16 cores; two for the host's), and the machine code tens of megabytes."""
_LONGEST_ROW_ON_HOST = 1024
"""g++'s time grows with the square of a function's loads, of which each is guarded."""
_MOST_BYTES = 1 << 31
"""Offsets into B and C are immediates of 32 bits."""


class Emitter(StrEnum):
    """What language the kernel is written in."""

    PTX = "ptx"
    """For ptxas, function by function; the host ring takes C++ all the same."""
    CUDA = "cuda"
    """C++, as published."""


@dataclass(frozen=True)
class LoSpmm:
    """SpMM by constant-propagated, unrolled code."""

    name: ClassVar[str] = NAME
    ops: ClassVar[frozenset[Op]] = frozenset({Op.SPMM})
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA, DeviceKind.HOST_SIMT})
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (ZERO_ROWS,)

    tile_rows: int = 0
    """M1; 0 searches, as with the next two."""
    threads: int = 0
    """Of a thread block; N1 is ``threads * cpt``."""
    cpt: int = 0
    """Neighbouring columns of a thread: 1, 2 or 4."""
    prefetch: int = 8
    """Columns of a tile in flight (b of algorithm 2)."""
    cpl: int = 0
    """Least products between two loads (CPL of algorithm 2)."""
    order: str = Order.GREEDY
    """``greedy`` (algorithm 1) or ``none``."""
    emitter: str = Emitter.PTX
    """``ptx`` or ``cuda``."""

    def __post_init__(self) -> None:
        Schedule(self.cpt or 1, self.prefetch, self.cpl)
        if self.order not in set(Order):
            raise ValueError(f"expected an order out of {', '.join(Order)}, found {self.order!r}")
        if self.emitter not in set(Emitter):
            raise ValueError(f"expected an emitter out of {', '.join(Emitter)}, found {self.emitter!r}")
        if not 0 <= self.tile_rows <= 255:
            raise ValueError(f"expected tile_rows in [1, 255], or 0 to search, found {self.tile_rows}")
        if self.threads % 32 or not 0 <= self.threads <= 1024:
            raise ValueError(f"expected threads in whole warps, at most 1024, or 0 to search, found {self.threads}")

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse halves, which the paper has none of, and what would make too long a kernel."""
        return next(self._refusals(problem, device), None)

    def _refusals(self, problem: Problem, device: DeviceSpec) -> Iterator[str]:
        matrix, most = problem.matrix, _MOST_NNZ[device.kind]
        longest = int(matrix.row_lengths.max())
        if problem.dtype is not DType.FLOAT32:
            yield f"expected float32, found {problem.dtype}"
        if self.cpt and problem.width % self.cpt:
            yield f"expected J to be a multiple of cpt = {self.cpt}, found {problem.width}"
        if matrix.nnz > most:
            yield f"expected at most {most:,} non-zeros in one unrolled kernel, found {matrix.nnz:,}"
        if device.kind is DeviceKind.HOST_SIMT and longest > _LONGEST_ROW_ON_HOST:
            yield f"expected at most {_LONGEST_ROW_ON_HOST:,} non-zeros in a row on the host, found {longest:,}"
        if max(matrix.shape) * problem.width * problem.dtype.itemsize >= _MOST_BYTES:
            yield f"expected B and C below 2 GiB, found {max(matrix.shape):,} rows of {problem.width:,} columns"
        if matrix.num_rows > MAX_GRID[1]:
            yield f"expected at most {MAX_GRID[1]:,} rows, found {matrix.num_rows:,}"

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Search, write the kernel, and compile or assemble it; nothing is run on the device."""
        return LoSpmmPlan(problem, open_target(device), self)


class LoSpmmPlan(DevicePlan):
    """C = A B by one launch, and one before it that clears the rows that A leaves empty; deterministic."""

    def __init__(self, problem: Problem, target: Target, how: LoSpmm) -> None:
        matrix, device = problem.matrix, target.spec
        empty = np.flatnonzero(matrix.row_lengths == 0).astype(np.int32)
        # Rows are cleared four elements at a time where J allows it.
        cleared = next(v for v in (4, 2, 1) if problem.width % v == 0) if empty.size else 1
        super().__init__(problem, target, {"order": str(how.order)}, alignment=problem.dtype.itemsize * cleared)
        self.stored = matrix.nnz
        self._kernel: Kernel | None = None
        self._grid = (0, 0, 0)
        self._zeroing: RowZeroing | None = None
        if matrix.nnz:
            with self.phase("search"):
                pins = Pins(how.tile_rows, how.threads, how.cpt)
                found = search(problem, device, Order(how.order), how.prefetch, pins)
            self._describe(found, how)
            size = found.size
            self._alignment = max(self._alignment, problem.dtype.itemsize * size.cpt)
            with self.phase("convert"):
                tiles = make_tiles(matrix, problem.values, found.dealt.rows)
                dispatch = np.arange(len(tiles), dtype=np.int32)
                kernel = UnrolledKernel(tiles, dispatch, problem.width, Schedule(size.cpt, how.prefetch, how.cpl))
            with self.phase("compile"):
                self._kernel = self._compiled(kernel, size.threads, Emitter(how.emitter))
            self._grid = (ceil_div(problem.width, size.tile_width), len(tiles), 1)
        if empty.size:
            with self.phase("upload"):
                self._zeroing = RowZeroing(self, empty, problem.width, problem.dtype)

    def _describe(self, found: Found, how: LoSpmm) -> None:
        size = found.size
        self.search = found.record
        self.config |= {
            "tile_rows": size.tile_rows,
            "threads": size.threads,
            "cpt": size.cpt,
            "tile_width": size.tile_width,
            "prefetch": how.prefetch,
            "cpl": how.cpl,
            "nnc_sum": int(found.dealt.nnc.sum()),
            "cov_row": round(found.dealt.cov_row, 4),
            **{f"after_{stage}": count for stage, count in found.survivors.counts.items()},
        }
        if found.survivors.relaxed:
            self.config["waived"] = found.survivors.relaxed

    def _compiled(self, kernel: UnrolledKernel, threads: int, emitter: Emitter) -> Kernel:
        device, schedule = self.target.spec, kernel.schedule
        cap = register_cap(kernel.tile_rows, schedule.cpt, schedule.prefetch)
        if device.kind is DeviceKind.CUDA and emitter is Emitter.PTX:
            from spmark.impls.lo_spmm.gpu import load_assembled

            binary = assemble(kernel, device.arch, cap)
            self.config |= {"emitter": str(emitter), "registers": binary.registers}
            self.device_bytes += len(binary.cubin)
            return load_assembled(binary, threads)
        self.config["emitter"] = str(Emitter.CUDA)
        source = _source_file(cuda_source(kernel, max(1, device.registers_per_sm // (cap * threads))))
        self.device_bytes += 16 * (schedule.cpt * sum(tile.nnz for tile in kernel.tiles))
        (loaded,) = self.target.load([KernelTemplate(source, NAME, {"threads": (threads,)}).instance(threads=threads)])
        return loaded

    def enqueue(self, operands: Sequence[DeviceArray], out: DeviceArray) -> None:
        """Clear empty rows, then compute the others."""
        if self._zeroing is not None:
            self._zeroing.enqueue(out)
        if self._kernel is not None:
            arguments: tuple[Any, ...] = (*operands, out)
            self._kernel.launch(self._grid, arguments)


def _source_file(text: str) -> Path:
    """Keep a generated source beside the compiled kernels, named by its content; written whole or not at all."""
    path = cache_folder() / "sources" / f"{NAME}_{hashlib.sha256(text.encode()).hexdigest()[:24]}.cu"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            file.write(text)
        Path(file.name).replace(path)
    return path
