"""Descriptions of kernels turned into launches, in either language, on either kind of device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import BuildError
from spmark.impls.core.interfaces import DeviceArray
from spmark.impls.core.problem import Problem
from spmark.impls.lo_spmm.assemble import assemble, cache_key
from spmark.impls.lo_spmm.constraints import Limits, register_cap
from spmark.impls.lo_spmm.emit_cuda import cuda_source
from spmark.impls.lo_spmm.kernel import INSTRUCTION_BYTES, NAME, UnrolledKernel
from spmark.impls.lo_spmm.proxies import resident_blocks
from spmark.impls.lo_spmm.space import TileSize, grid_of
from spmark.impls.runtime.compile import Binary, kept_source
from spmark.impls.runtime.target import Kernel, Target
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

    kernels: dict[int, Kernel]
    """Loaded, by threads of a thread block."""
    code_bytes: int
    registers: int
    """Registers of a thread, the most where block sizes differ; 0 on the host."""
    cache_key: str = ""
    """Key under which a later process may read the machine code; PTX only."""
    by_block: Mapping[int, int] = field(default_factory=dict)
    """Registers by threads of a thread block; C++ only, which is compiled for each block size by itself."""

    def registers_at(self, block_threads: int) -> int:
        """Give the registers of a thread in blocks of ``block_threads``."""
        return self.by_block.get(block_threads, self.registers)


def make_code(
    kernel: UnrolledKernel, target: Target, emitter: Emitter, block_threads: Sequence[int], workers: int | None = None
) -> Code:
    """Compile or assemble a kernel, or read it from the cache, and load it for some block sizes.

    PTX is one piece of code for all block sizes; C++ is compiled for each, since it states its launch bounds.

    Raises
    ------
    CompileError
        A compiler or assembler failed.
    """
    device, cap = target.spec, cap_of(kernel)
    if is_assembled(target, emitter):
        binary = assemble(kernel, device.arch, cap, workers)
        return load_binary(binary, block_threads, cache_key(kernel, device.arch, cap))
    instances = instances_of(kernel, device, block_threads)
    kernels = dict(zip(block_threads, target.load(instances), strict=True))
    if device.kind is DeviceKind.CUDA:
        from spmark.impls.lo_spmm.gpu import describe_compiled

        return describe_compiled(kernels)
    instructions = kernel.schedule.cpt * sum(tile.nnz for tile in kernel.tiles)
    return Code(kernels, INSTRUCTION_BYTES * instructions, 0)


def instances_of(kernel: UnrolledKernel, device: DeviceSpec, block_threads: Sequence[int]) -> list[Instance]:
    """Write a kernel's C++ and give its instances to compile, one for each block size.

    Raises
    ------
    BuildError
        The source cannot be written.
    """
    source, cap = kept_source(cuda_source(kernel), NAME), cap_of(kernel)
    instances = []
    for threads in block_threads:
        # ptxas ignores a bound that no multiprocessor could hold, and with it the cap.
        blocks = resident_blocks(threads, cap, device)
        template = KernelTemplate(source, NAME, {"threads": (threads,), "min_blocks": (blocks,)})
        instances.append(template.instance(threads=threads, min_blocks=blocks))
    return instances


def cap_of(kernel: UnrolledKernel) -> int:
    """Give the most registers of a thread that a kernel's compiler may use."""
    return register_cap(kernel.tile_rows, kernel.schedule.cpt, kernel.schedule.prefetch)


def load_binary(binary: Binary, block_threads: Sequence[int], key: str) -> Code:
    """Load assembled code, which the cache keeps under ``key``."""
    from spmark.impls.lo_spmm.gpu import load_assembled

    return Code(load_assembled(binary, block_threads), len(binary.cubin), binary.registers, key)


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
    registers = code.registers_at(size.block_threads)
    most = Limits.of(target.spec).most_warps(registers) * target.spec.warp_size
    if size.block_threads > most:
        raise BuildError(
            f"{NAME}: expected at most {most} threads of {registers} registers in a thread block, found "
            f"{size.block_threads}; pin fewer tiles_per_block or threads"
        )


def fitting(code: Code, size: TileSize, target: Target) -> TileSize:
    """Give a tile size with as many of its tiles in a block as the code's registers leave room for.

    Raises
    ------
    BuildError
        Not even one tile's threads fit.
    """
    for together in range(size.tiles_per_block, 1, -1):
        with suppress(BuildError):
            check_fits(code, replace(size, tiles_per_block=together), target)
            return replace(size, tiles_per_block=together)
    alone = replace(size, tiles_per_block=1)
    check_fits(code, alone, target)
    return alone


def make_for(kernel: UnrolledKernel, target: Target, emitter: Emitter, size: TileSize) -> tuple[Code, TileSize]:
    """Make the code of one tile size; give it with the size that fits. Raises as `make_code` and `fitting`."""
    fewest = 1 if is_assembled(target, emitter) else size.tiles_per_block
    blocks = [size.threads * together for together in range(fewest, size.tiles_per_block + 1)]
    code = make_code(kernel, target, emitter, blocks)
    return code, fitting(code, size, target)


@dataclass(frozen=True)
class Launch:
    """A kernel with its arguments for one tile size."""

    kernel: Kernel
    grid: tuple[int, int, int]
    tile_threads: np.uint32

    @classmethod
    def of(cls, code: Code, size: TileSize, num_tiles: int, problem: Problem) -> Launch:
        """Make the launch of a tile size that the code was loaded for."""
        return cls(code.kernels[size.block_threads], grid_of(size, num_tiles, problem.width), np.uint32(size.threads))

    def enqueue(self, operand: DeviceArray, out: DeviceArray, shared_bytes: int = 0) -> None:
        """Launch on the current stream."""
        self.kernel.launch(self.grid, (operand, out, self.tile_threads), shared_bytes)
