"""Products with a CSR that is on the GPU already: plans read the caller's arrays, and none comes to the host."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Hashable, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from spmark.impls.auto.race import Choice, Chosen
from spmark.impls.core.errors import BuildError
from spmark.impls.core.problem import MAX_NNZ, Op, checked_width, dtype_name
from spmark.impls.kernels.device_csr import DeviceCsr, DeviceProblem
from spmark.impls.kernels.direct_spmm import DirectPlan, usual_schedule
from spmark.impls.kernels.plain import PlainPlan
from spmark.impls.operator.choose import PLAIN, Asked
from spmark.impls.operator.compiled import CompiledOperator
from spmark.impls.operator.extension import LAUNCHER
from spmark.impls.operator.gpu import on_stream_of
from spmark.impls.operator.matrices import ElementType, OwnedMatrix, loses_gradient, refuse_gradient
from spmark.impls.runtime.adopt import adopt
from spmark.impls.runtime.cuda import CudaTarget
from spmark.impls.runtime.device import find
from spmark.impls.runtime.plan import OneLaunchPlan
from spmark.impls.runtime.target import MAX_GRID, Target
from spmark.impls.runtime.withcupy import cupy


class Arrays(NamedTuple):
    """The arrays of a CSR on a GPU, of CuPy or PyTorch."""

    indptr: Any
    indices: Any
    values: Any
    shape: tuple[int, int]

    def signature(self) -> Hashable:
        """Give what stays the same while a plan may go on reading these arrays."""
        values, of_torch = self.values, hasattr(self.values, "data_ptr")
        places = [one.data_ptr() if of_torch else one.data.ptr for one in self[:3]]
        return (*places, values.shape, values.dtype, self.shape)


def arrays_of(a: Any) -> Arrays | None:
    """Give the arrays of a CSR of CuPy or PyTorch, None for any other matrix."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(a, torch.Tensor):
        if a.layout is not torch.sparse_csr or a.dim() != 2:
            return None
        refuse_gradient(a, torch, "matrix")
        # A view of the values would keep the matrix alive, and with it the plan.
        return Arrays(a.crow_indices(), a.col_indices(), a.values().detach(), tuple(a.shape))
    if getattr(a, "format", None) != "csr" or not hasattr(a, "indptr"):
        return None
    return Arrays(a.indptr, a.indices, a.data, a.shape)


class BorrowedOperator(CompiledOperator):
    """SpMM by arrays that their owner keeps: new values in them count from the next call on.

    Parameters
    ----------
    matrix : DeviceCsr
    dtype : ElementType
        Of the values.
    """

    def __init__(self, matrix: DeviceCsr, dtype: ElementType) -> None:
        asked, self._choice, libraries, ready = _alike(matrix.target, matrix.shape, dtype)
        super().__init__(OwnedMatrix(matrix, matrix.values, dtype), asked, {}, lasting=False)
        self._csr, self._libraries, self._ready = matrix, libraries, ready

    @property
    def pattern(self) -> DeviceCsr:
        """A, on the device."""
        return self._csr

    def plan(self, width: int) -> None:
        """Plan products of one J by rule, without a search."""
        width = checked_width(width)
        with self._planning:
            if width not in self._planned:
                if not self._planned:
                    self._csr.begin()  # what planning will ask for
                    self._share(LAUNCHER.found() if self._cuda else None)
                plan = self._built_for(width)
                if self._launches is not None:
                    self._launches.take(width, plan)
                self._planned[width] = Chosen(self._choice, plan)

    def _plan_call(self, width: int, arrays: Sequence[Any]) -> None:
        if width in self._planned:
            return
        with on_stream_of(arrays):
            if self._turns.capturing(()):
                raise BuildError(
                    f"spmm: expected an earlier product with this matrix and J = {width} while a stream captures a "
                    "graph, found none: compute one before the capture"
                )
            self.plan(width)

    def _built_for(self, width: int) -> OneLaunchPlan:
        matrix, dtype, target = self._csr, self._matrix.dtype, self._csr.target
        if dtype.searched is None:
            matrix.check()
            return PlainPlan(DeviceProblem(matrix, width, dtype.numpy), target)
        problem = DeviceProblem(matrix, width, dtype.searched)
        schedule: dict[str, Any] = usual_schedule(problem)  # checks the matrix, as whoever asks for its facts
        if width > MAX_GRID[1]:  # which takes the time of all the rest
            self._choice.check(problem, target.spec)
        arrays = matrix.indptr, matrix.indices, matrix.values
        pieces = matrix.pieces(schedule["rows"], schedule["longest"])
        return DirectPlan(problem, target, {}, arrays=arrays, pieces=pieces, **schedule)


@lru_cache(maxsize=256)
def _alike(target: Target, _shape: tuple[int, int], dtype: ElementType) -> tuple[Asked, Choice, Any, Any]:
    """Give what operators of one shape and type have in common, also what calls found of their operands."""
    name = PLAIN if dtype.searched is None else "direct"
    return Asked(Op.SPMM, target.spec, (name,), values="constant"), Choice(name), {}, {}


@cache
def _target_of(_device: int) -> Target:
    return CudaTarget(find("cuda"), keep=True)  # no rule asks for its rates


def current_target() -> Target:
    """Give the GPU on which the calling thread computes, with the kernels that it has loaded."""
    return _target_of(cupy.cuda.runtime.getDevice())


class _Kept(NamedTuple):
    matrix: weakref.ref[Any]
    signature: Hashable
    version: Hashable
    asked: Any
    """Type of the operand."""
    operator: BorrowedOperator


def _version(a: Any) -> Hashable:
    """Give what tells without looking at all arrays that a tensor has the same; None for others, or by a gradient."""
    torch = sys.modules.get("torch")
    if torch is None or type(a) is not torch.Tensor or a.layout is not torch.sparse_csr:
        return None
    return None if a.is_inference() or loses_gradient(a, torch) else (a._version, a.values().data_ptr())


class BorrowedOperators:
    """Operators of matrices on the GPU: each is kept as long as its matrix lives and has the same arrays.

    PyTorch counts changes in place, but of all three arrays together: asking would make each change of values a new
    plan. So columns and row pointers must stay as they are.

    Parameters
    ----------
    target : callable
        Gives the target of the calling thread.
    """

    def __init__(self, target: Callable[[], Target] = current_target) -> None:
        self._target = target
        self._kept: dict[int, _Kept] = {}

    def find(self, a: Any, dtype: Any) -> BorrowedOperator | None:
        """Give the operator of a matrix, None where plans cannot read its arrays, or have operands of another type.

        Raises
        ------
        ProblemError
            A gradient of the matrix would be lost.
        """
        key, target, version = id(a), self._target(), None
        kept = self._kept.get(key)
        if kept is None or kept.matrix() is not a or kept.operator.pattern.target is not target:
            kept = None
        elif (version := _version(a)) is not None and (kept.version, kept.asked) == (version, dtype):
            return kept.operator
        arrays = arrays_of(a)
        if arrays is None or (arrays.values.dtype != dtype and dtype_name(arrays.values.dtype) != dtype_name(dtype)):
            return None
        signature = arrays.signature()
        if kept is not None and kept.signature == signature:
            self._kept[key] = kept._replace(version=version, asked=dtype)
            return kept.operator
        made = _operator(arrays, target)
        if made is not None:
            forget = weakref.ref(a, lambda _: self._kept.pop(key, None))
            self._kept[key] = _Kept(forget, signature, version, dtype, made)
        return made


def _operator(arrays: Arrays, target: Target) -> BorrowedOperator | None:
    """Make an operator of arrays that are on the target, side by side in memory and not too long for int32."""
    dtype = _element_type(arrays.values.dtype)
    if dtype is None or min(arrays.shape) < 1 or max(*arrays.shape, arrays.values.shape[0]) > MAX_NNZ:
        return None
    indptr, indices, values = shown = [adopt(one) for one in arrays[:3]]
    if not all([f"cuda:{one.data.device_id}" == target.location and one.flags.c_contiguous for one in shown]):
        return None
    if indptr.dtype != np.int32 or indices.dtype != np.int32:
        with on_stream_of(arrays[:3]):
            indptr, indices = indptr.astype(np.int32, copy=False), indices.astype(np.int32, copy=False)
    return BorrowedOperator(DeviceCsr(arrays.shape, indptr, indices, values, target), dtype)


@cache
def _element_type(dtype: Any) -> ElementType | None:
    name = dtype_name(dtype)
    return ElementType(name) if name in tuple(ElementType) else None


operators = BorrowedOperators()
