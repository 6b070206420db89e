"""Descriptions of kernels turned into launches, in either language, on either kind of device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import BuildError
from spmark.impls.core.interfaces import DeviceArray
from spmark.impls.core.problem import Problem
from spmark.impls.lo_spmm.assemble import assemble, cache_key
from spmark.impls.lo_spmm.constraints import most_warps, register_cap, resident_blocks
from spmark.impls.lo_spmm.emit_cuda import cuda_source
from spmark.impls.lo_spmm.kernel import INSTRUCTION_BYTES, NAME, UnrolledKernel
from spmark.impls.lo_spmm.parts import PartSums, workspace_bytes
from spmark.impls.lo_spmm.space import TileSize, grid_of
from spmark.impls.runtime.compile import Binary, kept_source
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target
from spmark.impls.runtime.template import Instance, KernelTemplate


class Emitter(StrEnum):
    """The language that a kernel is written in."""

    PTX = "ptx"
    """For ptxas, function by function; the host ring still takes C++."""
    CUDA = "cuda"
    """C++, as published."""


@dataclass(frozen=True)
class Code:
    """Machine code of one kernel."""

    kernels: Mapping[int, Any]
    """Loaded, by threads of a thread block."""
    code_bytes: int
    registers: Mapping[int, int] = field(default_factory=dict)
    """Registers of a thread by threads of a thread block, since C++ is compiled for each; empty on the host."""
    cache_key: str = ""
    """Key under which a later process may read the machine code; PTX only."""

    def registers_at(self, block_threads: int) -> int:
        """Give the registers of a thread in blocks of ``block_threads``: the most of all where none has this size."""
        return self.registers.get(block_threads, max(self.registers.values(), default=0))

    def kernel_at(self, block_threads: int) -> Any:
        """Give the loaded kernel for blocks of ``block_threads``, or one of another size, resized."""
        if block_threads in self.kernels:
            return self.kernels[block_threads]
        return replace(next(iter(self.kernels.values())), instance=_instance(block_threads))


def _instance(block_threads: int) -> Instance:
    return Instance(KernelTemplate(Path(NAME), NAME, {"threads": (block_threads,)}), (block_threads,))


def make_code(kernel: UnrolledKernel, target: Target, emitter: Emitter, block_threads: Sequence[int]) -> Code:
    """Compile or assemble a kernel, or read it from the cache, and load it for some block sizes.

    PTX is one piece of code for all block sizes; C++ is compiled for each, since it states its launch bounds.

    Raises
    ------
    CompileError
        A compiler or assembler failed.
    """
    device, cap = target.spec, cap_of(kernel)
    if is_assembled(target, emitter):
        return load_binary(assemble(kernel, device.arch, cap), cache_key(kernel, device.arch, cap))
    loaded = target.load(instances_of(kernel, device, block_threads))
    kernels: dict[int, Any] = dict(zip(block_threads, loaded, strict=True))
    if device.kind is DeviceKind.CUDA:
        registers = {threads: one.binary.registers for threads, one in kernels.items()}
        return Code(kernels, sum(len(one.binary.cubin) for one in kernels.values()), registers)
    return Code(kernels, INSTRUCTION_BYTES * kernel.schedule.cpt * sum(tile.nnz for tile in kernel.tiles))


def instances_of(kernel: UnrolledKernel, device: DeviceSpec, block_threads: Sequence[int]) -> list[Instance]:
    """Write a kernel's C++ and give its instances to compile, one for each block size.

    Raises
    ------
    BuildError
        The source cannot be written.
    """
    source, cap = kept_source(cuda_source(kernel), NAME), cap_of(kernel)
    # ptxas ignores a bound that no multiprocessor could hold, and with it the cap.
    bounds = [{"threads": threads, "min_blocks": resident_blocks(threads, cap, device)} for threads in block_threads]
    return [KernelTemplate(source, NAME, {k: (v,) for k, v in one.items()}).instance(**one) for one in bounds]


def cap_of(kernel: UnrolledKernel) -> int:
    """Give the most registers of a thread that a kernel's compiler may use."""
    return register_cap(kernel.tile_rows, kernel.schedule.cpt, kernel.schedule.prefetch)


def load_binary(binary: Binary, key: str) -> Code:
    """Load assembled code, which the cache keeps under ``key``, into the current context."""
    from spmark.impls.runtime.cuda import CudaKernel, load_function

    threads = 32
    loaded = CudaKernel(_instance(threads), binary, load_function(binary), overlaps=False)
    return Code({threads: loaded}, len(binary.cubin), {threads: binary.registers}, key)


def is_assembled(target: Target, emitter: Emitter) -> bool:
    """Tell whether the kernel is PTX: on a GPU, if ``emitter`` says so."""
    return target.spec.kind is DeviceKind.CUDA and emitter is Emitter.PTX


def check_fits(code: Code, size: TileSize, target: Target) -> None:
    """Refuse a launch for which a multiprocessor has too few registers.

    Raises
    ------
    BuildError
        The block does not fit a multiprocessor, since the assembler needed more registers than the estimate.
    """
    most = _most_threads(code, size, target)
    if size.block_threads > most:
        raise BuildError(
            f"{NAME}: expected at most {most} threads of {code.registers_at(size.block_threads)} registers in a thread "
            f"block, found {size.block_threads}; pin fewer tiles_per_block or threads"
        )


def fitting(code: Code, size: TileSize, target: Target) -> TileSize:
    """Give a tile size with as many of its tiles in a block as the code's registers leave room for.

    Raises
    ------
    BuildError
        Not even one tile's threads fit.
    """
    room = max(1, _most_threads(code, size, target) // size.threads)
    fewer = replace(size, tiles_per_block=min(size.tiles_per_block, room))
    check_fits(code, fewer, target)
    return fewer


def _most_threads(code: Code, size: TileSize, target: Target) -> int:
    return most_warps(code.registers_at(size.block_threads), target.spec) * target.spec.warp_size


class TileLaunch(DevicePlan):
    """A kernel's launch for a tile size, and the launch that adds parts: a candidate of a race, or what a plan runs."""

    code: Code
    num_tiles: int
    proxy_bytes: int | None = None
    """Dynamic shared memory of a proxy, which writes where the kernel would, and whose parts nothing adds."""

    def take(self, code: Code, size: TileSize, num_tiles: int, problem: Problem, *, sums: PartSums | None) -> None:
        """Take code that fits a size, with row tiles of all parts; sums that are not given are the plan's own."""
        own = PartSums(self.target, problem, size.split) if size.split > 1 and sums is None else sums
        self.code, self.num_tiles, self._sums = code, num_tiles, own
        self.device_bytes += code.code_bytes + workspace_bytes(problem, size.split)
        self._alignment = max(problem.dtype.itemsize * size.cpt, own.alignment if own else 1)
        self._kernel, self._threads = code.kernel_at(size.block_threads), np.uint32(size.threads)
        self._grid = grid_of(size, num_tiles, problem.width)

    def enqueue(self, operands: Sequence[DeviceArray], out: DeviceArray) -> None:
        """Launch, and add parts."""
        written = self._sums.partial if self._sums else out
        self._kernel.launch(self._grid, (operands[0], written, self._threads), self.proxy_bytes or 0)
        if self._sums and self.proxy_bytes is None:
            self._sums.enqueue(out)
