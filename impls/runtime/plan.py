"""The base of every plan on a `Target`: the plan's facts, its buffers, and the check of its operands."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from math import prod
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.interfaces import Built, DeviceArray
from spmark.impls.core.operands import check_operands
from spmark.impls.core.relational import AnyProblem
from spmark.impls.runtime.target import Grid, Kernel, Target
from spmark.impls.runtime.template import Instance

Arrays = Sequence[DeviceArray]
"""Arrays on a target."""


class DevicePlan(Built):
    """A plan whose arrays and kernels are on a target; subclasses upload in ``__init__`` and write `enqueue`.

    Where a plan holds A otherwise than as CSR it says how much it holds (`stored`).
    """

    arrays: Arrays = ()
    """What plans with another schedule of the same format may share."""

    def __init__(self, problem: AnyProblem, target: Target, config: Mapping[str, Any], alignment: int = 1) -> None:
        super().__init__(config=dict(config), stored=problem.matrix.nnz)
        self.target = target
        # Facts of the problem, not the problem: a plan must not keep the host's matrix alive.
        self.shapes = problem.operand_shapes, problem.out_shape
        """Of the operands, and of the result."""
        self.dtype = problem.dtype
        """Of operands and result."""
        self._alignment = alignment
        self.buffers: list[tuple[DeviceArray, bool]] = []
        """What a run writes beside the result and two runs at a time may not share, and whether it is `counters`."""
        self._failed = False

    def load(self, instances: Sequence[Instance]) -> list[Kernel]:
        """Compile and load kernels for the target."""
        with self.phase("compile"):
            return self.target.load(instances)

    def upload(self, array: NDArray[Any]) -> DeviceArray:
        """Copy to the target, which is the phase upload; counted in `device_bytes`."""
        self.device_bytes += array.nbytes
        with self.phase("upload"):
            return self.target.upload(array)

    def share(self, arrays: Arrays, host: Iterable[NDArray[Any]]) -> list[DeviceArray]:
        """Take the `arrays` of another plan of the same format, or upload them where there are none; give them."""
        self.arrays = shared = list(arrays)
        if not shared:
            with self.phase("upload"):
                shared += map(self.target.upload, host)
        self.device_bytes += sum([array.nbytes for array in shared])
        return shared

    def workspace(self, shape: tuple[int, ...], dtype: Any) -> DeviceArray:
        """Allocate a buffer that the plan owns, in the phase upload; counted in `device_bytes`."""
        self.device_bytes += prod(shape) * np.dtype(dtype).itemsize
        with self.phase("upload"):
            workspace = self.target.empty(shape, dtype)
        self.buffers += [(workspace, False)] if workspace.size else []
        return workspace

    def counters(self, shape: int | tuple[int, ...], dtype: Any = np.int32) -> DeviceArray:
        """Allocate counters or sums that a run finds 0 and leaves 0; where a run failed, the next clears them first."""
        with self.phase("upload"):
            counters = self.target.filled(shape if isinstance(shape, tuple) else (shape,), dtype, 0)
        self.device_bytes += counters.nbytes
        self.buffers += [(counters, True)] if counters.size else []
        return counters

    def run(self, operands: Sequence[DeviceArray], out: DeviceArray) -> None:
        """Enqueue on the caller's current stream (see `spmark.impls.core.interfaces.Plan.run`).

        CuPy arrays, PyTorch tensors and all others with ``__cuda_array_interface__`` or DLPack are taken without a
        copy. Where one is a PyTorch tensor, the plan enqueues on PyTorch's current stream.
        """
        given, stream = (*operands, out), None
        if self.target.spec.kind is not DeviceKind.HOST_SIMT:
            from spmark.impls.runtime.adopt import adopt, stream_of

            stream, given = stream_of(given), tuple(map(adopt, given))
        *operands, out = given
        where = self.target.location
        check_operands(*self.shapes, self.dtype, operands, out, device=where, alignment=self._alignment)
        with stream or nullcontext():
            if self._failed:
                for buffer, counts in self.buffers:
                    if counts:
                        buffer.fill(0)
            self._failed = True
            self.enqueue(operands, out)
            self._failed = False

    @abstractmethod
    def enqueue(self, operands: Sequence[DeviceArray], out: DeviceArray) -> None:
        """Launch; operands have been checked. No allocation, no synchronisation, no host read."""


class OneLaunchPlan(DevicePlan):
    """A plan of one kernel whose one launch writes the whole result.

    Subclasses call `_load` and `_arrange` in ``__init__``. The kernel takes sizes, arrays, operands and the result.
    """

    _kernel: Kernel
    _grid: Grid
    _args: tuple[Any, ...]
    """The kernel's arguments before the operands."""
    _shared_bytes = 0
    """Dynamic shared memory of a block."""

    def _load(self, instance: Instance) -> None:
        started = perf_counter()
        self._kernel = self.target.kernel(instance)
        self.charge({"compile": perf_counter() - started})

    def _arrange(
        self, grid: Grid, sizes: Iterable[int], arrays: Iterable[NDArray[Any]], shared: Iterable[DeviceArray] = ()
    ) -> None:
        """Set the grid and the arguments: sizes become int32, arrays are uploaded, and `share` gave what is shared."""
        self._grid = grid
        self._args = (*map(np.int32, sizes), *map(self.upload, arrays), *shared)

    @property
    def launch(self) -> tuple[Any, Grid, tuple[Any, ...], int]:
        """The kernel, its grid, its arguments before operands and result, and its bytes of dynamic shared memory."""
        return self._kernel, self._grid, self._args, self._shared_bytes

    def enqueue(self, operands: Sequence[DeviceArray], out: DeviceArray) -> None:
        """Launch the kernel once."""
        self._kernel.launch(self._grid, (*self._args, *operands, out), self._shared_bytes)
