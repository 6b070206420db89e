"""The functions of the package `spmark` itself: `spmm`, `sddmm`, `compile` and `load`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import ProblemError
from spmark.impls.core.problem import Op
from spmark.impls.operator import choose
from spmark.impls.operator.arrays import library_of
from spmark.impls.operator.compiled import ROLES, CompiledOperator
from spmark.impls.operator.extension import LAUNCHER
from spmark.impls.operator.matrices import OwnedMatrix


def spmm(a: Any, b: Any, *, out: Any = None) -> Any:
    """Compute C = A B once, ``C[i, j] = sum_k A[i, k] B[k, j]``, without a search.

    A is planned anew at each call; `compile` plans once for many products.

    A CSR of CuPy or PyTorch that is on b's GPU and has b's type is read where it is. Its plan is kept as long as the
    matrix object lives and has the same arrays, and follows values that change in place. Columns and row pointers must
    not change in place: for another pattern make another matrix. Its rows may hold a place several times, in any order.

    Parameters
    ----------
    a : sparse matrix (I, K)
        As `compile` takes it. Its values are converted to ``b``'s type only where NumPy calls that safe.
    b : array (K, J)
        Of NumPy, CuPy or PyTorch; float16, bfloat16, float32 or float64. It says where the product is computed.
    out : array (I, J), optional
        Of ``b``'s library, type and device.

    Returns
    -------
    array (I, J)
        ``out``, or a new array of ``b``'s library, type and device.

    Raises
    ------
    MatrixError, OperandError, ProblemError
        An argument does not fit; says what was expected, what was found and what to do.
    """
    operator = _borrowed(a, b)
    return _once(Op.SPMM, a, (b,), out, scaled=False) if operator is None else operator(b, out=out)


def sddmm(a: Any, x: Any, y: Any, *, scaled: bool = False, out: Any = None) -> Any:
    """Compute D once, ``D[i, k] = sum_j X[i, j] Y[k, j]`` at the non-zeros of A, without a search.

    Parameters
    ----------
    a : sparse matrix (I, K)
        As `compile` takes it.
    x, y : arrays (I, J), (K, J)
        Of one library, type and device.
    scaled : bool
        Multiply by A[i, k].
    out : array (nnz,), optional
        As in `spmm`.

    Returns
    -------
    array (nnz,)
        In the order of A's CSR with sorted columns, each place once.

    Raises
    ------
    MatrixError, OperandError, ProblemError
        As `spmm`.
    """
    return _once(Op.SDDMM, a, (x, y), out, scaled=bool(choose.one_of("scaled", scaled, (True, False))))


def compile(
    a: Any,
    op: Literal["spmm", "sddmm"] = "spmm",
    *,
    width: int | Sequence[int] = 128,
    dtype: Any = None,
    use: str | Sequence[str] = "auto",
    values: Literal["variable", "constant"] = "variable",
    other_width: Literal["plan", "raise"] = "plan",
    scaled: bool = False,
    budget_s: float | None = None,
    runs: int | None = None,
    device: str | DeviceSpec = "auto",
    cache: bool = True,
) -> CompiledOperator:
    """Plan a product with A for many dense operands.

    Parameters
    ----------
    a : sparse matrix (I, K)
        SciPy's or CuPy's of any format, PyTorch's COO, CSR or CSC, a `spmark.impls.core.problem.Csr`, or PyG's
        ``(edge_index, num_nodes)``: the matrix with which A X sums over each node's incoming edges. Entries of one
        place are added up, integers in float64, and columns are sorted. The operator has its own copy.
    op : {"spmm", "sddmm"}
        ``C[i, j] = sum_k A[i, k] B[k, j]``, or ``D[i, k] = sum_j X[i, j] Y[k, j]`` at A's non-zeros.
    width : int or sequence of int
        J of the dense operands; each width gets a plan now. None at all, ``()``, leaves every plan to the first call.
    dtype : dtype, optional
        Type of operands, result and A's values: float16, bfloat16, float32 or float64, by the name or the dtype of a
        library. By default A's own type; A's values are converted only where a type is given here.

        float64 is served without a search, by one plain kernel for each operator on a GPU and by SciPy on a CPU, and
        the others by the implementations of the table.
    use : str or sequence of str
        An implementation's name; or a class in a file, ``"./mine.py:MyKernel"``, which is imported; or a CUDA file,
        ``"./mine.cu"``; or several, which are raced; or ``"auto"``, a race of up to three that the implementation
        `auto` expects to be the fastest, and of the device's baseline.
    values : {"variable", "constant"}
        Whether A's values may change (`CompiledOperator.update_values`). Only with ``"constant"`` may a plan hold them
        in its code.
    other_width : {"plan", "raise"}
        What a call with another J does: plan it, by the same choice among implementations, or raise. Every width keeps
        its plan.
    scaled : bool
        SDDMM only: multiply by A[i, k].
    budget_s : float, optional
        Seconds of the race after which no further implementation begins. One that has begun ends its own search, which
        is kept on disk. 0 measures nothing: of ``"auto"`` it takes the choice by rule, of several the first that fits.
    runs : int, optional
        Products that the plan is made for, with ``"auto"``: searching, converting and compiling are weighed against
        their time. By default building does not count.
    device : {"auto", "cuda", "cpu", "host-simt"} or DeviceSpec
        ``auto`` is the GPU where there is one, else the CPU.
    cache : bool
        Whether results of searches are read from disk and kept there, in ``plans`` below ``SPMARK_CACHE`` or the user's
        cache. A second compilation of the same pattern then takes no search, if J, dtype, device, driver, code, ``use``
        and ``budget_s`` are the same.

        ``SPMARK_MAX_PLANS_MIB`` (256) limits the files; those that were used least recently make room. A damaged
        file counts as absent.

    Returns
    -------
    CompiledOperator

    Raises
    ------
    MatrixError, ProblemError, DeviceError
        An argument does not fit; says what was expected, what was found and what to do.
    BuildError
        No implementation can be built.
    """
    kind = Op(choose.one_of("an operator", op, tuple(Op)))
    choose.one_of("values", values, ("variable", "constant"))
    choose.one_of("other_width", other_width, ("plan", "raise"))
    for name, flag in (("scaled", scaled), ("cache", cache)):
        choose.one_of(name, flag, (True, False))
    spec = choose.device_of(device)
    names = choose.names_of(choose.loaded(use), kind, spec, values == "constant")
    budget_s, runs = choose.limits_of(budget_s, runs)
    asked = choose.Asked(kind, spec, names, bool(scaled), values, other_width, budget_s, bool(cache), runs)
    matrix, widths = OwnedMatrix.of(a, dtype), choose.widths_of(width)
    if spec.kind is DeviceKind.CUDA:
        LAUNCHER.found()  # is built while widths are planned
    if not widths and other_width == "raise":
        raise ProblemError("expected a width J of at least 1, found none")
    return CompiledOperator(matrix, asked, {one: choose.plan_width(matrix, asked, one) for one in widths})


def load(path: Path | str) -> CompiledOperator:
    """Make an operator that `CompiledOperator.save` wrote, without a search.

    Raises
    ------
    BuildError
        The file is missing, damaged, of something else, or was written by other code; says which.
    DeviceError
        The file was written for another device.
    """
    from spmark.impls.operator.saved import path_of, read

    return read(path_of(path))


def _borrowed(a: Any, b: Any) -> CompiledOperator | None:
    """Give the operator that reads a matrix where it is, where matrix and operand are on a GPU."""
    if not all([getattr(one, "is_cuda", None) or type(one).__module__.startswith("cupy") for one in (a, b)]):
        return None
    from spmark.impls.operator.borrowed import operators

    return operators.find(a, b.dtype)


def _once(op: Op, a: Any, operands: Sequence[Any], out: Any, scaled: bool) -> Any:
    role = f"{op} {ROLES[op][0]}"
    library, first = library_of(operands[0], role)
    library.check(first, role)
    matrix = OwnedMatrix.of(a, first.dtype, safe=True)
    device = choose.device_of("cpu" if library.on_host(first) else "cuda")
    asked = choose.Asked(op, device, (choose.AUTO,), scaled, "constant", budget_s=0)
    return CompiledOperator(matrix, asked, {}, lasting=False)(*operands, out=out)
