"""Assembled kernels and candidates on the GPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import numpy as np

from spmark.impls.core.errors import CompileError, SpmarkError
from spmark.impls.core.interfaces import Built, Config, DeviceArray
from spmark.impls.formats.threads import cores
from spmark.impls.lo_spmm.assemble import assemble
from spmark.impls.lo_spmm.kernel import NAME, Tile, TileSchedule, UnrolledKernel
from spmark.impls.lo_spmm.machine import (
    Code,
    Emitter,
    Launch,
    cap_of,
    check_fits,
    instances_of,
    is_assembled,
    make_code,
)
from spmark.impls.lo_spmm.parts import PartSums, tiles_of
from spmark.impls.lo_spmm.proxies import active_tiles, launch_for, make_proxy
from spmark.impls.lo_spmm.search import TileSpace
from spmark.impls.lo_spmm.space import TileSize
from spmark.impls.lo_spmm.tuning import KernelKey, by_kernel, kernel_of
from spmark.impls.runtime.compile import Binary
from spmark.impls.runtime.compile_pool import compile_many, side_by_side
from spmark.impls.runtime.cuda import CudaKernel, load_function
from spmark.impls.runtime.target import Kernel, Target, ceil_div
from spmark.impls.runtime.template import Instance, KernelTemplate
from spmark.impls.tuning.gpu import PlanTimer
from spmark.impls.tuning.race import Race


def load_assembled(binary: Binary, block_threads: Sequence[int]) -> dict[int, Kernel]:
    """Load a binary of `spmark.impls.lo_spmm.assemble.assemble` into the current context, for some block sizes."""
    function = load_function(binary)
    template = KernelTemplate(Path(f"{NAME}.ptx"), NAME, {"threads": tuple(block_threads)})
    return {
        threads: CudaKernel(Instance(template, (threads,)), binary, function, overlaps=False)
        for threads in block_threads
    }


def describe_compiled(kernels: Mapping[int, Kernel]) -> Code:
    """Describe kernels that NVRTC compiled from C++, by threads of a thread block, from their binaries."""
    binaries = {threads: kernel.binary for threads, kernel in kernels.items() if isinstance(kernel, CudaKernel)}
    by_block = {threads: binary.registers for threads, binary in binaries.items()}
    code_bytes = sum(len(binary.cubin) for binary in binaries.values())
    return Code(dict(kernels), code_bytes, max(by_block.values()), by_block=by_block)


class Launched(Built):
    """A kernel, or a proxy, launched for one tile size: a candidate of a race.

    Attributes
    ----------
    made : (Code, int), optional
        The kernel's code and the number of its tiles; None of a proxy.
    """

    def __init__(self, enqueue: Callable[[DeviceArray, DeviceArray], None], made: tuple[Code, int] | None) -> None:
        super().__init__()
        self._enqueue, self.made = enqueue, made

    def run(self, operands: Sequence[DeviceArray], out: DeviceArray) -> None:
        """Enqueue on the current stream."""
        self._enqueue(operands[0], out)


class Kernels:
    """Kernels of one problem, or their proxies, for the tile sizes that a race asks for.

    Parameters
    ----------
    space : TileSpace
    target : Target
        The GPU.
    emitter : Emitter
    cpl : int
        `spmark.impls.lo_spmm.kernel.TileSchedule.cpl` of every candidate.
    warm : bool
        `spmark.impls.lo_spmm.kernel.UnrolledKernel.warm`.
    proxies : bool
        Whether proxies stand for the kernels.
    """

    def __init__(
        self,
        space: TileSpace,
        target: Target,
        *,
        emitter: Emitter,
        cpl: int,
        warm: bool = True,
        proxies: bool = False,
    ) -> None:
        self._space, self._target, self._emitter, self._cpl = space, target, emitter, cpl
        self._warm, self._proxies = warm, proxies
        self._assembled = is_assembled(target, emitter)
        self._codes: dict[KernelKey, Code | SpmarkError | MemoryError] = {}
        self._kernels: dict[KernelKey, UnrolledKernel] = {}
        self._tiles: dict[tuple[int, int], tuple[Tile, ...]] = {}
        self._sums: dict[int, PartSums] = {}
        self.compiled = 0
        """Kernels that `prepare` was asked for: C++ is compiled for every size of a thread block."""

    def prepare(self, configs: Sequence[Config]) -> None:
        """Assemble or compile the kernels of candidates side by side and load them; `plan` raises their errors."""
        groups = by_kernel(TileSize(**config) for config in configs)
        blocks = [self._block_threads(sizes) for sizes in groups]
        self.compiled += len(groups) if self._assembled else sum(map(len, blocks))
        if self._assembled:
            self._assemble([kernel_of(sizes[0]) for sizes in groups])
        else:
            self._compile(groups)
        for sizes, wanted in zip(groups, blocks, strict=True):
            self._codes[kernel_of(sizes[0])] = self._loaded(kernel_of(sizes[0]), wanted)

    def plan(self, config: Config) -> Launched:
        """Give the launch of a candidate.

        Raises
        ------
        BuildError
            The candidate's block does not fit a multiprocessor.
        CompileError
            The kernel cannot be made.
        """
        size = TileSize(**config)
        code = self._codes.get(kernel_of(size))
        if code is None or (isinstance(code, Code) and not (self._proxies or size.block_threads in code.kernels)):
            self.prepare([config])
            code = self._codes[kernel_of(size)]
        if not isinstance(code, Code):
            raise code
        check_fits(code, size, self._target)
        if self._proxies:
            return Launched(self._proxy(code, size), None)
        return Launched(self._real(code, size), (code, self._kernel(kernel_of(size)).dispatch.size))

    def _assemble(self, wanted: Sequence[KernelKey]) -> None:
        """Assemble into the cache."""
        workers = max(1, ceil_div(2 * cores(), len(wanted)))
        if self._proxies:
            _ = self._active  # once, before threads ask for it

        def make(key: KernelKey) -> None:
            with suppress(CompileError):
                kernel = self._kernel(key)
                assemble(kernel, self._target.spec.arch, cap_of(kernel), workers)

        side_by_side(make, wanted, cores())

    def _compile(self, groups: Sequence[Sequence[TileSize]]) -> None:
        """Have processes compile all block sizes of all kernels into the cache, the longest texts first."""
        instances = [
            instance
            for sizes in groups
            for instance in instances_of(
                self._kernel(kernel_of(sizes[0])), self._target.spec, self._block_threads(sizes)
            )
        ]
        instances.sort(key=lambda one: one.template.source.stat().st_size, reverse=True)
        compile_many([(one.template.source, one.expression, self._target.spec.arch) for one in instances], cores())

    def _loaded(self, key: KernelKey, block_threads: Sequence[int]) -> Code | SpmarkError | MemoryError:
        try:
            code = make_code(self._kernel(key), self._target, self._emitter, block_threads)
        except (SpmarkError, MemoryError) as error:
            return error
        if self._proxies:
            for loaded in code.kernels.values():  # one function, and so one limit, of all block sizes
                loaded.allow_shared(self._target.spec.shared_bytes_per_block)
        return code

    def _block_threads(self, sizes: Sequence[TileSize]) -> list[int]:
        """Give the block sizes to compile for: a proxy in C++ is compiled once, for its largest block."""
        wanted = sorted({size.block_threads for size in sizes})
        return wanted[-1:] if self._proxies and not self._assembled else wanted

    def _kernel(self, key: KernelKey) -> UnrolledKernel:
        if key not in self._kernels:
            self._kernels[key] = self._described(key)
        return self._kernels[key]

    def _described(self, key: KernelKey) -> UnrolledKernel:
        problem, (rows, cpt, split) = self._space.problem, key
        if (rows, split) not in self._tiles:
            self._tiles[rows, split] = tiles_of(problem, self._space.dealt(rows).rows, split)
        tiles = self._tiles[rows, split]
        schedule = TileSchedule(cpt, self._space.pins.depth(rows, cpt), self._cpl)
        if self._proxies:
            active, sparsity = self._active[key], 1 - problem.matrix.nnz / math.prod(problem.matrix.shape)
            return make_proxy(tiles, sparsity, active, width=problem.width, schedule=schedule, warm=self._warm)
        dispatch = np.arange(len(tiles), dtype=np.int32)
        return UnrolledKernel(tiles, dispatch, problem.width, schedule, self._warm, followed=split > 1)

    @cached_property
    def _active(self) -> dict[KernelKey, list[int]]:
        """Row tiles side by side on a multiprocessor, of every candidate of a kernel, whichever are asked for."""
        space, active = self._space, dict[KernelKey, list[int]]()
        for size in space.survivors.sizes:
            tiles, registers = space.dealt(size.tile_rows, size.split).nnz.size, space.registers(size)
            running = active_tiles(size, tiles, space.problem.width, registers, space.device)
            active.setdefault(kernel_of(size), []).append(running)
        return active

    def _real(self, code: Code, size: TileSize) -> Callable[[DeviceArray, DeviceArray], None]:
        launch = Launch.of(code, size, self._kernel(kernel_of(size)).dispatch.size, self._space.problem)
        if size.split == 1:
            return launch.enqueue
        sums = self._parts(size.split)

        def run_parts(operand: DeviceArray, out: DeviceArray) -> None:
            launch.enqueue(operand, sums.partial)
            sums.enqueue(out)

        return run_parts

    def _parts(self, split: int) -> PartSums:
        if split not in self._sums:
            self._sums[split] = PartSums(self._target, self._space.problem, split)
        return self._sums[split]

    def _proxy(self, code: Code, size: TileSize) -> Callable[[DeviceArray, DeviceArray], None]:
        """Make the launch that stands for a candidate: it reads and writes where the real launch does."""
        kernel, width = self._kernel(kernel_of(size)), self._space.problem.width
        registers, device = self._space.registers(size), self._target.spec
        args = launch_for(size, kernel.dispatch.size, width, registers=registers, device=device)
        loaded = code.kernels.get(args.threads) or _resized(next(iter(code.kernels.values())), args.threads)
        launch = Launch(loaded, args.grid, np.uint32(size.threads))
        partial = None if size.split == 1 else self._parts(size.split).partial
        return lambda operand, out: launch.enqueue(operand, out if partial is None else partial, args.shared_bytes)


def open_race(
    space: TileSpace,
    target: Target,
    *,
    emitter: Emitter,
    cpl: int = 0,
    warm: bool = True,
    proxies: bool = False,
) -> Race[Launched]:
    """Open a race of tile sizes (`spmark.impls.lo_spmm.tuning.config_of`); see `Kernels` for the parameters.

    No result is checked: proxies compute nothing, and the reference of a wide layer takes as long as a search. The
    suite checks the plan of the winning size before it has a time, like every plan.
    """
    kernels = Kernels(space, target, emitter=emitter, cpl=cpl, warm=warm, proxies=proxies)
    return Race(
        kernels.plan,
        PlanTimer(space.problem, target.spec),
        prepare=kernels.prepare,
        trusts=lambda config: True,
        compiled=lambda: kernels.compiled,
    )


def _resized(kernel: Kernel, threads: int) -> Kernel:
    """Give the same function for another block size."""
    assert isinstance(kernel, CudaKernel)
    template = KernelTemplate(Path(f"{NAME}.cu"), NAME, {"threads": (threads,)})
    return CudaKernel(Instance(template, (threads,)), kernel.binary, kernel.function, overlaps=False)
