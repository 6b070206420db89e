"""Assembled kernels and candidates on the GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path
from time import perf_counter

import numpy as np

from spmark.impls.core.errors import BuildError, CompileError
from spmark.impls.core.operators import random_operands
from spmark.impls.formats.threads import cores
from spmark.impls.lo_spmm.assemble import assemble
from spmark.impls.lo_spmm.constraints import register_cap
from spmark.impls.lo_spmm.kernel import NAME, Schedule, Tile, UnrolledKernel
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
from spmark.impls.lo_spmm.proxies import LEAST_INSTRUCTIONS, launch_for
from spmark.impls.lo_spmm.reduction import Reduction
from spmark.impls.lo_spmm.search import Space
from spmark.impls.lo_spmm.space import TileSize
from spmark.impls.lo_spmm.tuning import SAMPLES, kernel_of
from spmark.impls.runtime.compile import Binary
from spmark.impls.runtime.compile_pool import compile_many
from spmark.impls.runtime.cuda import CudaKernel, cuda_faults, load_function
from spmark.impls.runtime.cudatiming import CudaStopwatch
from spmark.impls.runtime.target import Kernel, Target, ceil_div
from spmark.impls.runtime.template import Instance, KernelTemplate
from spmark.impls.runtime.withcupy import cupy

_WARMUPS = 1


def load_assembled(binary: Binary, block_threads: Sequence[int]) -> dict[int, Kernel]:
    """Load what `spmark.impls.lo_spmm.assemble.assemble` gave into the current context, for some block sizes."""
    function = load_function(binary)
    template = KernelTemplate(Path(f"{NAME}.ptx"), NAME, {"threads": tuple(block_threads)})
    return {
        threads: CudaKernel(Instance(template, (threads,)), binary, function, overlaps=False)
        for threads in block_threads
    }


def describe_compiled(kernels: Mapping[int, Kernel]) -> Code:
    """Give C++ that NVRTC compiled, by threads of a thread block, with what its binaries say."""
    binaries = {threads: kernel.binary for threads, kernel in kernels.items() if isinstance(kernel, CudaKernel)}
    by_block = {threads: binary.registers for threads, binary in binaries.items()}
    code_bytes = sum(len(binary.cubin) for binary in binaries.values())
    return Code(dict(kernels), code_bytes, max(by_block.values()), by_block=by_block)


class GpuRunner:
    """Compiles and times the candidates of one problem (`spmark.impls.lo_spmm.tuning.Runner`).

    Parameters
    ----------
    space : Space
    target : Target
        The GPU.
    emitter : Emitter
    cpl : int
        `spmark.impls.lo_spmm.kernel.Schedule.cpl` of every candidate.
    warm : bool
        `spmark.impls.lo_spmm.kernel.UnrolledKernel.warm`.
    """

    def __init__(
        self,
        space: Space,
        target: Target,
        *,
        emitter: Emitter,
        cpl: int,
        warm: bool = True,
    ) -> None:
        self._space, self._target, self._emitter, self._cpl = space, target, emitter, cpl
        self._warm = warm
        problem = space.problem
        (source,) = random_operands(problem, 0)
        self._operand = cupy.empty(source.shape, problem.dtype.numpy)
        source.fill(self._operand, cupy)
        self._out = cupy.empty(problem.out_shape, problem.dtype.numpy)
        self._stopwatch = CudaStopwatch(target.spec)
        self._kernels: dict[tuple[int, int, int, bool], UnrolledKernel] = {}
        self._codes: dict[tuple[int, int, int, bool], Code] = {}
        self._reduction: Reduction | None = None
        self._tiles: dict[tuple[int, int], tuple[Tile, ...]] = {}
        self._sums: dict[int, PartSums] = {}
        self.compile_s = 0.0

    def samples_us(
        self, sizes: Sequence[TileSize], proxies: bool, samples: int = SAMPLES
    ) -> Mapping[TileSize, list[float]]:
        """Give the times of candidates, by turns and from cold caches.

        Results are not checked here: a plan's is before it has a time.

        Raises
        ------
        BuildError
            No candidate's block fits a multiprocessor.
        CompileError
            The kernel of some of them cannot be made.
        KernelFault
            One broke the device.
        """
        runs: dict[TileSize, Callable[[], None]] = {}
        reasons: list[str] = []
        for _, together in groupby(sorted(sizes, key=kernel_of), key=kernel_of):
            self._add_runs(list(together), proxies, runs, reasons)
        if not runs:
            raise BuildError("; ".join(dict.fromkeys(reasons)))
        # In another order every round: a candidate right after one of the same kernel and grid was seen to find its
        # code in the multiprocessors' caches (96 rows, 9.9 us instead of 13.7 in three rounds of five).
        turns = list(runs)
        found: dict[TileSize, list[float]] = {size: [] for size in runs}
        random = np.random.default_rng(0)
        with cuda_faults():
            for number in range(_WARMUPS + samples):
                order = [turns[at] for at in random.permutation(len(turns))]
                times = self._stopwatch.batch([runs[size] for size in order], 1, cold=True)[:, 0]
                for size, time_us in zip(order, times, strict=True):
                    if number >= _WARMUPS:
                        found[size].append(round(float(time_us), 3))
        return found

    def _add_runs(
        self, sizes: Sequence[TileSize], proxies: bool, runs: dict[TileSize, Callable[[], None]], reasons: list[str]
    ) -> None:
        """Add the launches of candidates that share a kernel, and why some cannot be launched."""
        kernel, key = self._kernel(sizes, proxies), (*kernel_of(sizes[0]), proxies)
        wanted = self._block_threads(sizes, proxies)
        # Proxies that are C++ serve all blocks, whichever they were compiled for.
        if key not in self._codes or not (proxies or set(wanted) <= set(self._codes[key].kernels)):
            with self._compiling():
                self._codes[key] = make_code(kernel, self._target, self._emitter, wanted)
        code = self._codes[key]
        if proxies:
            for loaded in code.kernels.values():  # the same function: what is opted in to is of all that share it
                loaded.allow_shared(self._target.spec.shared_bytes_per_block)
        for size in sizes:
            try:
                check_fits(code, size, self._target)
            except BuildError as error:
                reasons.append(str(error))
                continue
            runs[size] = self._proxy(code, size, kernel) if proxies else self._real(code, size, kernel)

    def prepare(self, groups: Sequence[Sequence[TileSize]], proxies: bool) -> None:
        """Assemble or compile the kernels of several groups of candidates side by side."""
        if not is_assembled(self._target, self._emitter):
            with self._compiling():
                self._compile(groups, proxies)
            return
        workers = max(1, ceil_div(2 * cores(), len(groups)))
        if proxies:
            self._reduced()  # once, before threads ask for it

        def make(sizes: Sequence[TileSize]) -> None:
            with suppress(CompileError):
                kernel = self._kernel(sizes, proxies)
                assemble(kernel, self._target.spec.arch, cap_of(kernel), workers)

        with self._compiling(), ThreadPoolExecutor(min(len(groups), cores())) as pool:
            list(pool.map(make, groups))

    def _compile(self, groups: Sequence[Sequence[TileSize]], proxies: bool) -> None:
        """Have processes compile all block sizes of all kernels into the cache, the longest texts first."""
        instances = [
            instance
            for sizes in groups
            for instance in instances_of(
                self._kernel(sizes, proxies), self._target.spec, self._block_threads(sizes, proxies)
            )
        ]
        instances.sort(key=lambda one: one.template.source.stat().st_size, reverse=True)
        compile_many([(one.template.source, one.expression, self._target.spec.arch) for one in instances], cores())

    @contextmanager
    def _compiling(self) -> Iterator[None]:
        started = perf_counter()
        try:
            yield
        finally:
            self.compile_s += perf_counter() - started

    def count_kernels(self, groups: Sequence[Sequence[TileSize]], proxies: bool) -> int:
        """Count one for each group of PTX, and of C++ one for each size of a thread block."""
        if is_assembled(self._target, self._emitter):
            return len(groups)
        return sum(len(self._block_threads(sizes, proxies)) for sizes in groups)

    def _block_threads(self, sizes: Sequence[TileSize], proxies: bool) -> list[int]:
        """Give the block sizes to compile for: a proxy in C++ is compiled once, for its largest."""
        wanted = sorted({size.block_threads for size in sizes})
        return wanted[-1:] if proxies and not is_assembled(self._target, self._emitter) else wanted

    def _kernel(self, sizes: Sequence[TileSize], proxies: bool) -> UnrolledKernel:
        key = *kernel_of(sizes[0]), proxies
        if key not in self._kernels:
            self._kernels[key] = self._described(sizes, proxies)
        return self._kernels[key]

    def _described(self, sizes: Sequence[TileSize], proxies: bool) -> UnrolledKernel:
        problem, (rows, cpt, split) = self._space.problem, kernel_of(sizes[0])
        if (rows, split) not in self._tiles:
            self._tiles[rows, split] = tiles_of(problem, self._space.dealt(rows).rows, split)
        tiles = self._tiles[rows, split]
        schedule = Schedule(cpt, self._space.pins.depth(rows, cpt), self._cpl)
        if not proxies:
            dispatch = np.arange(len(tiles), dtype=np.int32)
            return UnrolledKernel(tiles, dispatch, problem.width, schedule, self._warm, followed=split > 1)
        return self._reduced().proxy((rows, cpt, split), tiles, schedule, self._warm)

    def _reduced(self) -> Reduction:
        if self._reduction is None:
            # In C++ the paper's number of functions: NVRTC's time grows faster than what it compiles.
            least = LEAST_INSTRUCTIONS if is_assembled(self._target, self._emitter) else 0
            self._reduction = Reduction.of(self._space, least_instructions=least)
        return self._reduction

    def _real(self, code: Code, size: TileSize, kernel: UnrolledKernel) -> Callable[[], None]:
        launch = Launch.of(code, size, kernel.dispatch.size, self._space.problem)
        if size.split > 1:
            sums = self._parts(size.split)

            def run_parts() -> None:
                launch.enqueue(self._operand, sums.partial)
                sums.enqueue(self._out)

            return run_parts

        return lambda: launch.enqueue(self._operand, self._out)

    def _parts(self, split: int) -> PartSums:
        if split not in self._sums:
            self._sums[split] = PartSums(self._target, self._space.problem, split)
        return self._sums[split]

    def _proxy(self, code: Code, size: TileSize, kernel: UnrolledKernel) -> Callable[[], None]:
        """Make the launch that stands for a candidate: it reads and writes where the real one does."""
        registers = register_cap(size.tile_rows, size.cpt, kernel.schedule.prefetch)
        tiles, width = kernel.dispatch.size, self._space.problem.width
        own = code.registers
        args = launch_for(size, tiles, width, registers=registers, own_registers=own, device=self._target.spec)
        loaded = code.kernels.get(args.threads) or _resized(next(iter(code.kernels.values())), args.threads)
        launch = Launch(loaded, args.grid, np.uint32(size.threads))
        out = self._out if size.split == 1 else self._parts(size.split).partial
        return lambda: launch.enqueue(self._operand, out, args.shared_bytes)


def _resized(kernel: Kernel, threads: int) -> Kernel:
    """Give the same function for another block size."""
    assert isinstance(kernel, CudaKernel)
    template = KernelTemplate(Path(f"{NAME}.cu"), NAME, {"threads": (threads,)})
    return CudaKernel(Instance(template, (threads,)), kernel.binary, kernel.function, overlaps=False)
