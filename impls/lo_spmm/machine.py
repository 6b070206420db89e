"""Descriptions of kernels turned into launches, in either language, on either kind of device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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

    kernel: Any
    """Loaded."""
    code_bytes: int
    registers: int = 0
    """Registers of a thread; 0 on the host."""
    cache_key: str = ""
    """Key under which a later process may read the machine code; PTX only."""

    def kernel_at(self, block_threads: int) -> Any:
        """Give the loaded kernel for blocks of ``block_threads``, resized where it was made for others."""
        made_for = self.kernel.instance.threads == block_threads
        return self.kernel if made_for else replace(self.kernel, instance=_instance(block_threads))


def _instance(block_threads: int) -> Instance:
    return Instance(KernelTemplate(Path(NAME), NAME, {"threads": (block_threads,)}), (block_threads,))


def make_code(kernel: UnrolledKernel, target: Target, emitter: Emitter, block_threads: int) -> Code:
    """Compile or assemble a kernel, or read it from the cache, and load it for blocks of ``block_threads``.

    PTX is one piece of code for all block sizes; C++ is compiled for each, since it states its launch bounds.

    Raises
    ------
    CompileError
        A compiler or assembler failed.
    """
    device, cap = target.spec, cap_of(kernel)
    if is_assembled(target, emitter):
        return load_binary(assemble(kernel, device.arch, cap), cache_key(kernel, device.arch, cap))
    loaded: Any = target.load([instance_of(kernel, device, block_threads)])[0]
    if device.kind is DeviceKind.CUDA:
        return Code(loaded, len(loaded.binary.cubin), loaded.binary.registers)
    return Code(loaded, INSTRUCTION_BYTES * kernel.cpt * sum(tile.nnz for tile in kernel.tiles))


def instance_of(kernel: UnrolledKernel, device: DeviceSpec, block_threads: int) -> Instance:
    """Write a kernel's C++ and give its instance to compile for a block size.

    Raises
    ------
    BuildError
        The source cannot be written.
    """
    source, cap = kept_source(cuda_source(kernel), NAME), cap_of(kernel)
    # ptxas ignores a bound that no multiprocessor could hold, and with it the cap.
    bounds = {"threads": block_threads, "min_blocks": resident_blocks(block_threads, cap, device)}
    return KernelTemplate(source, NAME, {name: (bound,) for name, bound in bounds.items()}).instance(**bounds)


def cap_of(kernel: UnrolledKernel) -> int:
    """Give the most registers of a thread that a kernel's compiler may use."""
    return register_cap(kernel.tile_rows, kernel.cpt, kernel.prefetch)


def load_binary(binary: Binary, key: str) -> Code:
    """Load assembled code, which the cache keeps under ``key``, into the current context."""
    from spmark.impls.runtime.cuda import CudaKernel, load_function

    loaded = CudaKernel(_instance(32), binary, load_function(binary), overlaps=False)
    return Code(loaded, len(binary.cubin), binary.registers, key)


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
    most = _most_threads(code, target)
    if size.block_threads > most:
        raise BuildError(
            f"{NAME}: expected at most {most} threads of {code.registers} registers in a thread block, "
            f"found {size.block_threads}; pin fewer tiles_per_block or threads"
        )


def fitting(code: Code, size: TileSize, target: Target) -> TileSize:
    """Give a tile size with as many of its tiles in a block as the code's registers leave room for, at least one."""
    room = max(1, _most_threads(code, target) // size.threads)
    return replace(size, tiles_per_block=min(size.tiles_per_block, room))


def _most_threads(code: Code, target: Target) -> int:
    return most_warps(code.registers, target.spec) * target.spec.warp_size


class TileLaunch(DevicePlan):
    """A kernel's launch for a tile size, and the launch that adds parts: a candidate of a race, or what a plan runs."""

    code: Code
    num_tiles: int
    proxy_bytes: int | None = None
    """Dynamic shared memory of a proxy, which writes where the kernel would, and whose parts nothing adds."""

    def take(self, code: Code, size: TileSize, num_tiles: int, problem: Problem, *, sums: PartSums | None) -> None:
        """Take code and row tiles of all parts; sums that are not given are the plan's own.

        Raises
        ------
        BuildError
            The block does not fit a multiprocessor (`check_fits`).
        """
        check_fits(code, size, self.target)
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
