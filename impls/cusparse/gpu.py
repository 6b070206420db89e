"""Plans on cuSPARSE, and the search for its fastest variant."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, c_size_t, c_void_p
from typing import Any

import numpy as np

from spmark.impls.core.errors import BuildError, UnsupportedError
from spmark.impls.core.interfaces import Built, Config, DeviceArray, Plan
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.cusparse.blocks import blocked_ell, smallest
from spmark.impls.cusparse.library import ALGORITHMS, NON_TRANSPOSE, TRANSPOSE, Descriptor, library
from spmark.impls.cusparse.plan import GATHER, THREADS
from spmark.impls.formats.bsr import BsrFormat
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import C_TYPES
from spmark.impls.runtime.withcupy import cupy
from spmark.impls.tuning.race import Race
from spmark.impls.tuning.strategies import exhaustive
from spmark.impls.tuning.timer import PlanTimer

_FLOAT32_COMPUTE = 0


class _LibraryPlan(DevicePlan):
    """One call of the library on described matrices; subclasses describe the matrices, then call `_allocate`."""

    def __init__(self, problem: Problem, target: Target, config: dict[str, Any], algorithm: str) -> None:
        super().__init__(problem, target, config)
        spmm = problem.op is Op.SPMM
        self._library = library()
        self._function = "cusparseSpMM" if spmm else "cusparseSDDMM"
        self._algorithm = ALGORITHMS[algorithm] if spmm else 0
        self._spmm = spmm
        self._sparse: Descriptor
        self._dense: list[Descriptor]
        """Descriptors of the operands, and of SpMM's result."""

    def _arguments(self) -> tuple[Any, ...]:
        lib = self._library
        left, right, out = (self._sparse, *self._dense) if self._spmm else (*self._dense, self._sparse)
        second = NON_TRANSPOSE if self._spmm else TRANSPOSE
        return (
            *(lib.handle, NON_TRANSPOSE, second, lib.one, left.pointer, right.pointer),
            *(lib.zero, out.pointer, _FLOAT32_COMPUTE, self._algorithm),
        )

    def _on_stream(self) -> None:
        self._library("cusparseSetStream", self._library.handle, c_void_p(cupy.cuda.get_current_stream().ptr))

    def _allocate(self, preprocess: bool) -> DeviceArray:
        lib = self._library
        self._on_stream()
        size = c_size_t()
        lib(f"{self._function}_bufferSize", *self._arguments(), byref(size))
        buffer = self.workspace((max(size.value, 16),), np.uint8)
        if preprocess:
            lib(f"{self._function}_preprocess", *self._arguments(), c_void_p(buffer.data.ptr))
        self.target.synchronize()
        return buffer

    def _call(self, buffer: DeviceArray) -> None:
        self._library(self._function, *self._arguments(), c_void_p(buffer.data.ptr))


class CuSparsePlan(_LibraryPlan):
    """One variant of one operator.

    Parameters
    ----------
    arrays : sequence of device arrays, optional
        indptr, indices and values already on the device, so that variants share one upload.
    """

    def __init__(
        self,
        problem: Problem,
        target: Target,
        algorithm: str,
        preprocess: bool,
        arrays: Sequence[DeviceArray] | None = None,
    ) -> None:
        spmm = problem.op is Op.SPMM
        chosen: dict[str, Any] = {"algorithm": algorithm} if spmm else {}
        super().__init__(problem, target, {**chosen, "preprocess": preprocess}, algorithm)
        self.stored = problem.matrix.nnz
        # All algorithms except alg3 add the sums of thread blocks in any order. Sums of a result of 16 bits they add in
        # these 16 bits, even where float32 sums are asked for.
        self.deterministic = not spmm or algorithm == "alg3"
        self.half_sums = not self.deterministic and problem.dtype.narrow
        matrix, lib = problem.matrix, self._library
        with self.phase("upload"):  # for SDDMM the values only reserve memory, since the result replaces them
            self.arrays = arrays or [self.upload(one) for one in (matrix.indptr, matrix.indices, problem.values)]
        self.values = self.arrays[2]  # preprocessing looks at the pattern alone
        indptr, indices, values = (array.data.ptr for array in self.arrays)
        self._sparse = lib.csr(matrix.shape, matrix.nnz, (indptr, indices, values), problem.dtype)
        shapes = [*problem.operand_shapes, *([(matrix.num_rows, problem.width)] if spmm else [])]
        self._dense = [lib.dense(shape, problem.dtype) for shape in shapes]
        with self.phase("select"):
            self._buffer = self._allocate(preprocess)

    def enqueue(self, operands: Sequence[DeviceArray], out: DeviceArray) -> None:
        """Call the library once."""
        self._on_stream()
        descriptors = self._dense if len(operands) == 1 else [*self._dense, self._sparse]
        for descriptor, array in zip(descriptors, [*operands, out], strict=True):
            descriptor.point_to(array.data.ptr)
        self._call(self._buffer)


class BlockPlan(_LibraryPlan):
    """One operator over Blocked-ELL or BSR.

    The library takes whole blocks only. Where blocks reach past the matrix, the dense matrices pass through workspaces
    of whole blocks, and the copies are part of a run. SDDMM leaves every slot of every block in a float32 workspace,
    from which a kernel reads the non-zeros.

    Parameters
    ----------
    ell : bool
        Blocked-ELL (SpMM only); otherwise BSR.
    blocks : sequence of int
        Block sizes; the plan takes the size that stores least.
    """

    def __init__(self, problem: Problem, target: Target, ell: bool, blocks: Sequence[int]) -> None:
        super().__init__(problem, target, {}, "default")
        with self.phase("convert"):
            bsr = smallest(problem.matrix, blocks)
        block = bsr.block_shape[0]
        self.config["block"] = block
        spmm = problem.op is Op.SPMM
        whole = [ceil_div(size, block) * block for size in problem.matrix.shape]
        self._describe(problem, bsr, ell, (whole[0], whole[1]))
        rows = [whole[1], whole[0]] if spmm else whole
        self._dense = [self._library.dense((count, problem.width), problem.dtype) for count in rows]
        real = [shape[0] for shape in (*problem.operand_shapes, *([problem.out_shape] if spmm else []))]
        self._rooms = [self._room(count, real_rows, problem) for count, real_rows in zip(rows, real, strict=True)]
        if not spmm:
            with self.phase("compile"):
                instance = GATHER.instance(T=C_TYPES[problem.dtype], scaled=problem.scaled, threads=THREADS)
                (self._gather,) = target.load([instance])
            with self.phase("upload"):
                self._slots = [self.upload(bsr.positions), self.upload(problem.factors)]
            self._nnz = np.int32(problem.matrix.nnz)
        with self.phase("select"):
            self._buffer = self._allocate(preprocess=False)

    def _describe(self, problem: Problem, bsr: BsrFormat, ell: bool, shape: tuple[int, int]) -> None:
        block, lib, dtype = bsr.block_shape[0], self._library, problem.dtype
        self.stored = bsr.stored
        if ell:
            with self.phase("convert"):
                columns, values = blocked_ell(bsr)
            self.stored = values.size
            with self.phase("upload"):
                self._arrays = [self.upload(columns), self.upload(dtype.stored(values))]
            addresses = self._arrays[0].data.ptr, self._arrays[1].data.ptr
            self._sparse = lib.blocked_ell(shape, block, values.shape[1], addresses, dtype)
            return
        with self.phase("upload"):
            self._arrays = [self.upload(bsr.indptr), self.upload(bsr.indices)]
            if problem.op is Op.SPMM:
                self._arrays.append(self.upload(dtype.stored(bsr.blocks)))
            else:
                self._arrays.append(self.workspace(bsr.blocks.shape, np.float32))
                self._arrays[2].fill(0)
        indptr, indices, values = (array.data.ptr for array in self._arrays)
        counts = shape[0] // block, shape[1] // block
        kept = dtype if problem.op is Op.SPMM else DType.FLOAT32
        self._sparse = lib.bsr(counts, bsr.indices.size, block, (indptr, indices, values), kept)

    def _room(self, rows: int, real_rows: int, problem: Problem) -> DeviceArray | None:
        if rows == real_rows:
            return None
        room = self.workspace((rows, problem.width), problem.dtype.numpy)
        room.fill(0)  # rows past the matrix are multiplied by padding, so that they must be finite
        return room

    def enqueue(self, operands: Sequence[DeviceArray], out: DeviceArray) -> None:
        """Call the library once, with copies where blocks reach past the matrix, and gather SDDMM's result."""
        self._on_stream()
        stream = cupy.cuda.get_current_stream()
        spmm = len(operands) == 1
        given = [*operands, out] if spmm else list(operands)
        for position, (descriptor, array, room) in enumerate(zip(self._dense, given, self._rooms, strict=True)):
            descriptor.point_to((array if room is None else room).data.ptr)
            if room is not None and position < len(operands):
                room.data.copy_from_device_async(array.data, array.nbytes, stream)
        self._call(self._buffer)
        if not spmm:
            grid = (ceil_div(int(self._nnz), THREADS), 1, 1)
            self._gather.launch(grid, (self._nnz, *self._slots, self._arrays[2], out))
        elif self._rooms[-1] is not None:
            out.data.copy_from_device_async(self._rooms[-1].data, out.nbytes, stream)


def build_best(problem: Problem, target: Target) -> Plan:
    """Build every variant on one upload, race them, keep the fastest.

    Raises
    ------
    UnsupportedError
        Every variant refuses the problem; the error carries the library's words for each.
    """
    own, is_taken = Built(), False
    with own.phase("upload"):
        arrays = [target.upload(one) for one in (problem.matrix.indptr, problem.matrix.indices, problem.values)]

    def build(config: Config) -> CuSparsePlan:
        nonlocal is_taken
        plan = CuSparsePlan(problem, target, **config, arrays=arrays)
        is_taken = True
        return plan

    algorithms = ALGORITHMS if problem.op is Op.SPMM else ("default",)
    try:
        with own.phase("search"):
            race = Race(build, PlanTimer(problem, target.spec))
            exhaustive(race, [{"algorithm": one, "preprocess": early} for one in algorithms for early in (False, True)])
            _, best = race.finish()
    except BuildError as error:
        if is_taken:
            raise
        raise UnsupportedError(str(error)) from error
    own.phases_s["search"] -= sum(best.phases_s.values())
    best.charge(own.phases_s)
    best.device_bytes += sum(array.nbytes for array in arrays)
    best.search = race.describe()
    return best
