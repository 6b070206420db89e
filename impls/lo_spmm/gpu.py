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
from spmark.impls.formats.threads import cores
from spmark.impls.lo_spmm.assemble import assemble
from spmark.impls.lo_spmm.kernel import UnrolledKernel
from spmark.impls.lo_spmm.machine import (
    Code,
    Emitter,
    TileLaunch,
    cap_of,
    check_fits,
    instances_of,
    is_assembled,
    make_code,
)
from spmark.impls.lo_spmm.parts import PartSums
from spmark.impls.lo_spmm.proxies import active_tiles, make_proxy, shared_for
from spmark.impls.lo_spmm.search import TileSpace
from spmark.impls.lo_spmm.space import TileSize
from spmark.impls.lo_spmm.tuning import KernelKey, by_kernel, kernel_of
from spmark.impls.runtime.compile import compile_many, side_by_side
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.tuning.race import Race
from spmark.impls.tuning.timer import PlanTimer


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
    _codes: dict[KernelKey, Code | SpmarkError | MemoryError] = field(default_factory=dict)
    _kernels: dict[KernelKey, UnrolledKernel] = field(default_factory=dict)
    _sums: dict[int, PartSums | None] = field(default_factory=lambda: {1: None})

    def prepare(self, configs: Sequence[Config]) -> None:
        """Assemble or compile the kernels of candidates side by side and load them; `plan` raises their errors."""
        wanted, assembled = dict[KernelKey, list[int]](), is_assembled(self.target, self.emitter)
        for sizes in by_kernel(TileSize(**config) for config in configs):
            blocks = sorted({size.block_threads for size in sizes})
            # PTX serves every block size, and a proxy in C++ is compiled once, for its largest block.
            wanted[kernel_of(sizes[0])] = blocks[-1:] if self.proxies or assembled else blocks
        self.compiled += sum(map(len, wanted.values()))
        if assembled:
            self._assemble(list(wanted))
        else:
            self._compile(wanted)
        for key, blocks in wanted.items():
            self._codes[key] = self._loaded(key, blocks)

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
        key, split = kernel_of(size), size.split
        code = self._codes.get(key)
        resizes = self.proxies or is_assembled(self.target, self.emitter)
        if code is None or (isinstance(code, Code) and not resizes and size.block_threads not in code.kernels):
            self.prepare([config])
            code = self._codes[key]
        if not isinstance(code, Code):
            raise code
        check_fits(code, size, self.target)
        if split not in self._sums:
            self._sums[split] = PartSums(self.target, space.problem, split)
        num_tiles, shared_bytes = self._kernel(key).dispatch.size, None
        if self.proxies:
            active = active_tiles(size, num_tiles, space.problem.width, space.registers(size), self.target.spec)
            shared_bytes = shared_for(active // size.tiles_per_block, self.target.spec)
        return TileLaunch(code, size, num_tiles, space.problem, sums=self._sums[split], proxy_bytes=shared_bytes)

    def _assemble(self, wanted: Sequence[KernelKey]) -> None:
        """Assemble into the cache."""
        workers = max(1, ceil_div(2 * cores(), len(wanted)))
        if self.proxies:
            _ = self._active  # once, before threads ask for it

        def make(key: KernelKey) -> None:
            with suppress(CompileError):
                kernel = self._kernel(key)
                assemble(kernel, self.target.spec.arch, cap_of(kernel), workers)

        side_by_side(make, wanted, cores())

    def _compile(self, wanted: Mapping[KernelKey, Sequence[int]]) -> None:
        """Compile all block sizes of all kernels into the cache, the longest texts first."""
        spec = self.target.spec
        instances = [one for key, blocks in wanted.items() for one in instances_of(self._kernel(key), spec, blocks)]
        instances.sort(key=lambda one: one.template.source.stat().st_size, reverse=True)
        compile_many([(one.template.source, one.expression, spec.arch) for one in instances], cores())

    def _loaded(self, key: KernelKey, block_threads: Sequence[int]) -> Code | SpmarkError | MemoryError:
        try:
            code = make_code(self._kernel(key), self.target, self.emitter, block_threads)
        except (SpmarkError, MemoryError) as error:
            return error
        if self.proxies:
            for loaded in code.kernels.values():  # one function, and so one limit, of all block sizes
                loaded.allow_shared(self.target.spec.shared_bytes_per_block)
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
