"""Candidates on the GPU."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from spmark.impls.core.errors import CompileError, SpmarkError
from spmark.impls.core.interfaces import Config
from spmark.impls.core.machine import allowed_cores, side_by_side
from spmark.impls.lo_spmm.assemble import assemble
from spmark.impls.lo_spmm.kernel import UnrolledKernel
from spmark.impls.lo_spmm.machine import (
    Code,
    Emitter,
    TileLaunch,
    cap_of,
    instance_of,
    is_assembled,
    make_code,
)
from spmark.impls.lo_spmm.parts import PartSums
from spmark.impls.lo_spmm.proxies import active_tiles, make_proxy, shared_for
from spmark.impls.lo_spmm.search import TileSpace
from spmark.impls.lo_spmm.space import TileSize
from spmark.impls.lo_spmm.tuning import KernelKey, kernel_of
from spmark.impls.runtime.compile import compile_many
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.tuning.race import Race
from spmark.impls.tuning.timer import PlanTimer

CodeKey = tuple[KernelKey, int]
"""A kernel, and the threads of a block that its code is compiled for; 0 where it serves blocks of every size."""


@dataclass(eq=False)
class Kernels:
    """Kernels of one problem, or their proxies, for the tile sizes that a race asks for."""

    space: TileSpace
    target: Target
    """The GPU."""
    emitter: Emitter
    warm: bool = True
    """`spmark.impls.lo_spmm.kernel.UnrolledKernel.warm`."""
    proxies: bool = False
    """Whether proxies stand for the kernels."""
    compiled: int = 0
    """Kernels that `prepare` was asked for: C++ is compiled for every size of a thread block."""
    _codes: dict[CodeKey, Code | SpmarkError | MemoryError] = field(default_factory=dict)
    _kernels: dict[KernelKey, UnrolledKernel] = field(default_factory=dict)
    _sums: dict[int, PartSums | None] = field(default_factory=lambda: {1: None})

    def prepare(self, configs: Sequence[Config]) -> None:
        """Assemble or compile the kernels of candidates side by side and load them; `plan` raises their errors."""
        wanted = dict[CodeKey, int]()
        for size in (TileSize(**config) for config in configs):
            key = self._code_key(size)
            wanted[key] = max(wanted.get(key, 0), size.block_threads)
        self.compiled += len(wanted)
        if is_assembled(self.target, self.emitter):
            self._assemble([kernel for kernel, _ in wanted])
        else:
            self._compile(wanted)
        for key, block_threads in wanted.items():
            self._codes[key] = self._loaded(key[0], block_threads)

    def plan(self, config: Config) -> TileLaunch:
        """Give the launch of a candidate.

        Raises
        ------
        BuildError
            The candidate's block does not fit a multiprocessor.
        CompileError
            The kernel cannot be made.
        """
        size, space = TileSize(**config), self.space
        key, split = self._code_key(size), size.split
        if key not in self._codes:
            self.prepare([config])
        code = self._codes[key]
        if not isinstance(code, Code):
            raise code
        if split not in self._sums:
            self._sums[split] = PartSums(self.target, space.problem, split)
        launch, num_tiles = TileLaunch(space.problem, self.target, config), self._kernel(key[0]).dispatch.size
        launch.take(code, size, num_tiles, space.problem, sums=self._sums[split])
        if self.proxies:
            active = active_tiles(size, num_tiles, space.problem.width, space.registers(size), self.target.spec)
            launch.proxy_bytes = shared_for(active // size.tiles_per_block, self.target.spec)
        return launch

    def _code_key(self, size: TileSize) -> CodeKey:
        # A proxy in C++ is compiled once, for its largest block.
        serves_all = self.proxies or is_assembled(self.target, self.emitter)
        return kernel_of(size), 0 if serves_all else size.block_threads

    def _assemble(self, wanted: Sequence[KernelKey]) -> None:
        """Assemble into the cache."""
        workers = max(1, ceil_div(2 * len(allowed_cores()), len(wanted)))
        if self.proxies:
            _ = self._active  # once, before threads ask for it

        def make(key: KernelKey) -> None:
            with suppress(CompileError):
                kernel = self._kernel(key)
                assemble(kernel, self.target.spec.arch, cap_of(kernel), workers)

        side_by_side(make, wanted, len(allowed_cores()))

    def _compile(self, wanted: Mapping[CodeKey, int]) -> None:
        """Compile all block sizes of all kernels into the cache, the longest texts first."""
        spec = self.target.spec
        instances = [instance_of(self._kernel(kernel), spec, threads) for (kernel, _), threads in wanted.items()]
        instances.sort(key=lambda one: one.template.source.stat().st_size, reverse=True)
        compile_many([(one.template.source, one.expression, spec.arch) for one in instances])

    def _loaded(self, key: KernelKey, block_threads: int) -> Code | SpmarkError | MemoryError:
        try:
            code = make_code(self._kernel(key), self.target, self.emitter, block_threads)
        except (SpmarkError, MemoryError) as error:
            return error
        if self.proxies:
            code.kernel.allow_shared(self.target.spec.shared_bytes_per_block)  # of its function, at all block sizes
        return code

    def _kernel(self, key: KernelKey) -> UnrolledKernel:
        if key not in self._kernels:
            kernel = self.space.kernel(*key, self.warm)
            if self.proxies:
                matrix = self.space.problem.matrix
                kernel = make_proxy(kernel, 1 - matrix.nnz / math.prod(matrix.shape), self._active[key])
            self._kernels[key] = kernel
        return self._kernels[key]

    @cached_property
    def _active(self) -> dict[KernelKey, list[int]]:
        """Row tiles side by side on a multiprocessor, of every candidate of a kernel, whichever are asked for."""
        space, active = self.space, dict[KernelKey, list[int]]()
        for size in space.survivors.sizes:
            tiles, registers = space.dealt(size.tile_rows, size.split).nnz.size, space.registers(size)
            running = active_tiles(size, tiles, space.problem.width, registers, space.device)
            active.setdefault(kernel_of(size), []).append(running)
        return active


def open_race(space: TileSpace, target: Target, **how: Any) -> Race[TileLaunch]:
    """Open a race of tile sizes (`spmark.impls.lo_spmm.tuning.config_of`); see `Kernels` for ``how``.

    No result is checked: proxies compute nothing, and the reference of a wide layer takes as long as a search. The
    suite checks the plan of the winning size before it has a time, like every plan.
    """
    kernels = Kernels(space, target, **how)
    return Race(
        kernels.plan,
        PlanTimer(space.problem, target.spec),
        prepare=kernels.prepare,
        trusts=lambda config: True,
        compiled=lambda: kernels.compiled,
    )
