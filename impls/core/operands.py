"""What a plan takes: the check of operands and result before a run, and plans on the host that compute in float32.

The check sees facts of arrays (`ArrayFacts`), not arrays, so one set of messages serves NumPy, CuPy and PyTorch.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import OperandError
from spmark.impls.core.interfaces import Built
from spmark.impls.core.problem import DType

if TYPE_CHECKING:
    from spmark.impls.core.relational import AnyProblem

_ROLES = {
    (2,): ("spmm operand B (K, J)", "spmm result out (I, J)"),
    (2, 2): ("sddmm operand X (I, J)", "sddmm operand Y (K, J)", "sddmm result out (nnz,)"),
    (2, 3): (
        "rgms operand X (K, width_in)",
        "rgms operand W (R, width_in, width_out)",
        "rgms result out (I, width_out)",
    ),
}
"""What messages call the arrays of an operator, by the dimensions of its operands; of a convolution as of SpMM."""
_DLPACK_CUDA = 2


class ArrayFacts(NamedTuple):
    """What the check needs to know of one array, wherever it lives; every call makes some, which a tuple does fast."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...] | None
    """Bytes, or None for row-major and contiguous."""
    address: int
    """Address of the first element."""
    writable: bool
    device: str
    """``cpu``, ``cuda:0``; ``cuda`` where the array does not say which."""

    @classmethod
    def of(cls, array: Any) -> ArrayFacts:
        """Read the facts of a NumPy array, or of any array with ``__cuda_array_interface__`` (CuPy, PyTorch, Numba).

        Raises
        ------
        TypeError
            The object is another thing; names its type.
        """
        if isinstance(array, np.ndarray):
            address, read_only = array.__array_interface__["data"]
            strides = None if array.flags.c_contiguous else array.strides
            return cls(array.shape, array.dtype, strides, address, not read_only, "cpu")
        cupy = sys.modules.get("cupy")
        if cupy is not None and isinstance(array, cupy.ndarray):  # its interface takes ten times as long
            strides, place = None if array.flags.c_contiguous else array.strides, array.data
            return cls(array.shape, array.dtype, strides, place.ptr, True, f"cuda:{place.device_id}")
        interface = getattr(array, "__cuda_array_interface__", None)
        if interface is None:
            device = f" on {array.device}" if getattr(array, "device", None) is not None else ""
            raise TypeError(f"found a {type(array).__module__}.{type(array).__qualname__}{device}")
        # The interface does not say which GPU; DLPack does, without making a capsule.
        ask = getattr(array, "__dlpack_device__", None)
        kind, number = ask() if ask is not None else (None, 0)
        device = f"cuda:{int(number)}" if kind == _DLPACK_CUDA else "cuda"
        dtype, (address, read_only) = np.dtype(interface["typestr"]), interface["data"]
        return cls(tuple(interface["shape"]), dtype, interface.get("strides"), address, not read_only, device)

    @property
    def nbytes(self) -> int:
        """Bytes from the first to the last element of a contiguous array."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def contiguous(self) -> bool:
        """Whether the elements stand in row-major order without gaps."""
        if self.strides is None or 0 in self.shape:
            return True
        step = self.dtype.itemsize
        for length, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if length > 1 and stride != step:
                return False
            step *= length
        return True


def check_operands(
    operand_shapes: Sequence[tuple[int, ...]],
    out_shape: tuple[int, ...],
    dtype: DType | np.dtype[Any],
    operands: Sequence[Any],
    out: Any,
    *,
    device: str | None = None,
    alignment: int = 1,
) -> tuple[ArrayFacts, ...]:
    """Check that a plan can run on these arrays; costs microseconds and touches no element.

    Parameters
    ----------
    operand_shapes, out_shape, dtype
        Of the problem: one operand is SpMM's B, two are SDDMM's X and Y, or RGMS's X and W where the second has three
        dimensions. NumPy's dtype stands for a type that a `DType` does not name.
    operands, out
        What the caller passed.
    device : str, optional
        Where the arrays must be: ``cpu``, ``cuda``, ``cuda:0``; by default all where ``out`` is.
    alignment : int
        Bytes that must divide every address; the size of an element must always divide it.

    Returns
    -------
    tuple of ArrayFacts
        Of the operands and then of ``out``.

    Raises
    ------
    OperandError
        Names the operator, the array, what was expected, what was found and what to do.
    """
    roles = _ROLES.get(tuple(map(len, operand_shapes)), _ROLES[(2,)])
    if not isinstance(operands, (tuple, list)) or len(operands) != len(operand_shapes):
        passed = len(operands) if isinstance(operands, (tuple, list)) else f"a {type(operands).__name__}"
        op = roles[0].partition(" ")[0]
        raise OperandError(f"{op}: expected {len(operand_shapes)} operands in a tuple, found {passed}")
    facts = tuple([_facts(role, array, device) for role, array in zip(roles, (*operands, out), strict=True)])
    result = facts[-1]
    where, wanted = device or result.device, dtype.numpy if isinstance(dtype, DType) else dtype
    alignment = max(alignment, wanted.itemsize)
    for role, shape, one in zip(roles, (*operand_shapes, out_shape), facts, strict=True):
        if one.dtype != wanted:
            raise OperandError(
                f"{role}: expected dtype {dtype}, found {one.dtype}; convert it, or build a plan for that dtype"
            )
        _check_place(role, one, shape, where, alignment)
    if not result.writable:
        raise OperandError(f"{roles[-1]}: expected a writable array, found a read-only one; pass another")
    for role, one in zip(roles, facts[:-1], strict=False):
        if one.address < result.address + result.nbytes and result.address < one.address + one.nbytes:
            raise OperandError(f"{roles[-1]}: expected memory of its own, found some of {role}; pass another array")
    return facts


def _facts(role: str, array: Any, device: str | None) -> ArrayFacts:
    try:
        return ArrayFacts.of(array)
    except TypeError as error:
        kind = "a NumPy array" if device == "cpu" else f"an array on {device or 'the host or a GPU'}"
        raise OperandError(f"{role}: expected {kind}, {error}; convert it first") from error


def _check_place(role: str, facts: ArrayFacts, shape: tuple[int, ...], device: str, alignment: int) -> None:
    # An array that does not say which GPU it is on counts as being on the expected one.
    if facts.device != device and not (facts.device[:4] == device[:4] and "cuda" in (facts.device, device)):
        raise OperandError(f"{role}: expected an array on {device}, found one on {facts.device}; copy it there")
    if facts.shape != shape:
        raise OperandError(f"{role}: expected shape {shape}, found {facts.shape}; A is I x K and the dense width is J")
    if not facts.contiguous:
        raise OperandError(
            f"{role}: expected a row-major, contiguous array, found strides of {facts.strides} bytes for shape "
            f"{facts.shape}; pass a contiguous copy"
        )
    if facts.address % alignment and 0 not in shape:
        raise OperandError(
            f"{role}: expected an address that is a multiple of {alignment} bytes, found {facts.address:#x}; "
            "pass a copy, which will be aligned"
        )


def widened(problem: AnyProblem, stored: NDArray[Any]) -> NDArray[Any]:
    """Give values of a problem in the type that the host computes in: float64 of a `PlainProblem`, else float32."""
    return stored if stored.dtype == np.float64 else problem.dtype.numbers(stored).astype(np.float32, copy=False)


class HostPlan(Built):
    """A plan on the host's cores that computes in float32 or float64; subclasses call `hold` in ``__init__``.

    Arrays of these types pass through untouched. For 16 bits the plan has float32 workspaces for every operand and for
    the result. A run widens the operands and rounds the result once, so its time includes the conversions.
    """

    def hold(self, problem: AnyProblem, *arrays: NDArray[Any]) -> None:
        """Make the workspaces of a problem, and count their bytes with those of arrays that the plan holds."""
        # No reference to the problem's matrix is kept.
        self._wanted = problem.operand_shapes, problem.out_shape, problem.dtype
        self._dtype = problem.dtype
        narrow = (*problem.operand_shapes, problem.out_shape) if problem.dtype.itemsize < 4 else ()
        self._work = [np.empty(shape, np.float32) for shape in narrow]
        self.device_bytes = sum(array.nbytes for array in (*arrays, *self._work))

    def run(self, operands: Sequence[Any], out: Any) -> None:
        """Check the arrays and compute."""
        check_operands(*self._wanted, operands, out, device="cpu")
        if not self._work:
            self.compute(*operands, out)
            return
        for wide, narrow in zip(self._work, operands, strict=False):
            np.copyto(wide, self._dtype.numbers(narrow))
        self.compute(*self._work)
        result = self._work[-1]
        np.copyto(out, result if out.dtype.kind == "f" else self._dtype.stored(result), casting="same_kind")

    @abstractmethod
    def compute(self, *arrays: Any, **nothing: Any) -> None:
        """Compute the last of the arrays from the others, all float32, or all float64."""
