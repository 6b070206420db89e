"""The compiled operator: one sparse matrix, planned once, multiplied by as many dense matrices as a person has."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spmark.impls.auto.race import Chosen
from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import BuildError, OperandError, ProblemError
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.problem import Csr, Op, checked_width
from spmark.impls.operator.arrays import Library, check_dtype, check_shape, library_of
from spmark.impls.operator.choose import Asked, begin_width, limits_of, plan_width
from spmark.impls.operator.extension import LAUNCHER
from spmark.impls.operator.matrices import OwnedMatrix
from spmark.impls.operator.turns import Turns
from spmark.impls.runtime.target import open_target

if TYPE_CHECKING:
    from spmark.impls.operator.launches import Held, Launches
    from spmark.impls.operator.values import ChangingValues

Run = Callable[[Sequence[Any], Any], None]
"""Takes operands and the result."""
ROLES = {Op.SPMM: ("operand B (K, J)",), Op.SDDMM: ("operand X (I, J)", "operand Y (K, J)")}


class _Ready(NamedTuple):
    """A call that has been checked: arrays of the same signatures go straight to the plan."""

    width: int
    library: Library
    out_shape: tuple[int, ...]
    as_they_are: bool
    """Whether plans take the library's arrays as they are."""


class CompiledOperator:
    """SpMM or SDDMM with a fixed pattern; made by `spmark.compile` and `spmark.load`.

    Calls of several threads, and calls on several streams of a GPU, take turns: a call on another stream than the call
    before waits there, on the device, for the end of that call.

    A call may be captured into a CUDA graph once its width is planned. A graph has workspaces of its own where the
    operator's launches are made by the extension in C++ (`spmark.impls.operator.launches`). The caller keeps replays
    apart from other calls where a plan calls a library, or g++ is missing.

    Parameters
    ----------
    matrix : OwnedMatrix
    asked : Asked
    planned : dict
        Plans that there are already, by J.
    lasting : bool
        Whether many calls are expected, for which a plan's launches are noted.
    """

    def __init__(self, matrix: OwnedMatrix, asked: Asked, planned: dict[int, Chosen], lasting: bool = True) -> None:
        self._matrix, self._asked, self._planned = matrix, asked, planned
        self.op: Op = asked.op
        """The operator."""
        self.dtype: str = str(matrix.dtype)
        """Type of operands, result and A's values."""
        self.device: DeviceSpec = asked.device
        """Where plans run."""
        self._cuda = asked.device.kind is DeviceKind.CUDA
        self._turns = Turns(_streams() if self._cuda else None)
        self._lasting = self._cuda and lasting
        self._launches: Launches | None = None
        self._planning = threading.RLock()
        self._chosen: dict[int, Chosen] = {}
        self._changing: ChangingValues | None = None
        self.order: NDArray[np.int64] | None = None
        """Where new values have each value of `pattern`, (nnz,), set before the first; None for its own order."""
        self._libraries: dict[type, Library] = {}
        self._ready: dict[Hashable, _Ready] = {}
        self._known_values: set[Hashable] = set()
        for width, chosen in planned.items():
            self._note(width, chosen.plan)

    @property
    def _values(self) -> ChangingValues:
        """A's values, which most operators never change."""
        with self._planning:
            if self._changing is None:
                from spmark.impls.operator.values import ChangingValues

                self._changing = ChangingValues(self._matrix, self._asked, self._turns, self._planned, self.order)
            return self._changing

    @property
    def widths(self) -> tuple[int, ...]:
        """Every J that is planned, in the order of planning."""
        return tuple(self._planned)

    @property
    def pattern(self) -> Csr:
        """A's pattern: SDDMM's result and `update_values` follow its order. Its values may be out of date.

        Its arrays cannot be written: a width that is planned later would follow the change, and others would not.
        """
        kept = self._matrix.pattern
        views = {name: getattr(kept, name).view() for name in ("indptr", "indices", "values")}
        for view in views.values():
            view.flags.writeable = False
        return replace(kept, **views)

    def is_deterministic(self, width: int) -> bool:
        """Tell whether two runs at a planned width give the same bits.

        Raises
        ------
        ProblemError
            The width is illegal or not planned.
        """
        width = checked_width(width)
        if width not in self._planned:
            known = ", ".join(map(str, self.widths))
            raise ProblemError(
                f"{self.op}: expected a planned width ({known}), found {width!r}: call plan(width) first"
            )
        return self._planned[width].plan.deterministic

    def built(self, width: int) -> Plan:
        """Give the plan of a planned width."""
        return self._planned[width].plan

    def launches(self, width: int) -> Held | None:
        """Give the plan of a planned width, where the extension has it."""
        return None if self._launches is None else self._launches.find(width)

    def __repr__(self) -> str:
        """Say in a line what is computed."""
        rows, cols = self.pattern.shape
        widths = ", ".join(map(str, self.widths)) or "none yet"
        nnz = f"{self.pattern.nnz:,} non-zeros"
        return f"<spmark {self.op} of {rows} x {cols} with {nnz}, {self.dtype}, J = {widths}, {self.device.name}>"

    def __call__(self, *operands: Any, out: Any = None) -> Any:
        """Compute C = A B of ``op(b)``, or D of ``op(x, y)``.

        Parameters
        ----------
        *operands : arrays
            B (K, J), or X (I, J) and Y (K, J), of NumPy, CuPy or PyTorch, all of one library and of the operator's
            dtype. Any strides are taken; operands with gaps or of an odd address are copied first. A GPU's operator
            copies the host's arrays to the GPU, and the result back.

            Arrays of other libraries count as NumPy's, or on a GPU as CuPy's, through DLPack or
            ``__cuda_array_interface__``.
        out : array, optional
            Of the operands' library and place: (I, J) for SpMM, (nnz,) for SDDMM, row-major, contiguous, in memory of
            its own. Complete afterwards, whatever it held before.

        Returns
        -------
        array
            ``out``, or a new array of the operands' library, on their device. SDDMM's result is in the order of
            `pattern`.

        Raises
        ------
        OperandError
            An array does not fit; says what was expected, what was found and what to do.
        ProblemError
            J is not planned and ``other_width`` is ``"raise"``, or a tensor's gradient would be lost.
        BuildError
            J is not planned while a stream captures a graph, or cannot be planned.
        """
        if self._launches is not None:
            found = self._launches.call(operands, out)
            if found is not NotImplemented:
                return found
        given = operands if out is None else (*operands, out)
        libraries = self._libraries
        try:
            ready = self._ready.get(tuple([libraries[one.__class__].signature(one) for one in given]))
        except KeyError:  # the first array of its class
            ready = None
        if ready is None:
            return self._checked_call(operands, out)
        return self._run(ready, operands, out)

    def _run(self, ready: _Ready, operands: Sequence[Any], out: Any) -> Any:
        width, library, out_shape, as_they_are = ready
        self._plan_call(width, operands)  # a borrowed operator's first call may be like one with another matrix
        if out is None:
            if not library.allocates_in_capture and self._turns.capturing(operands):
                raise BuildError(f"{self.op}: expected out while a stream captures a graph, found none: pass out")
            out = library.empty(out_shape, operands[0])
        if self._launches is not None and self._launches.run(width, library, (*operands, out)):
            return out
        run = self._planned[width].plan.run
        if as_they_are:
            self._turns.take(run, operands, operands, out)
        else:
            shown = [library.shown(one) for one in operands]
            self._turns.take(run, operands, shown, library.shown(out))
        return out

    def _checked_call(self, operands: Sequence[Any], out: Any) -> Any:
        """Check everything, plan the width where that is allowed, copy operands where that is needed, and run."""
        wanted = ROLES[self.op]
        if len(operands) != len(wanted):
            raise OperandError(f"{self.op}: expected {' and '.join(wanted)}, found {len(operands)} operands")
        roles = [f"{self.op} {role}" for role in (*wanted, "result out")]
        given = operands if out is None else (*operands, out)
        library, arrays = self._of_one_library(given, roles)
        sizes = self.pattern.shape[::-1] if self.op is Op.SPMM else self.pattern.shape
        width: Any = None
        for array, size, role in zip(arrays[: len(wanted)], sizes, roles, strict=False):
            check_dtype(array, self._matrix.dtype, role)
            check_shape(array, (size, width), role)
            width = int(array.shape[1])
        out_shape = (self.pattern.num_rows, width) if self.op is Op.SPMM else (self.pattern.nnz,)
        result = None if out is None else arrays.pop()
        if result is not None:
            check_dtype(result, self._matrix.dtype, roles[-1])
            check_shape(result, out_shape, roles[-1])
            if not library.passable(result):
                raise OperandError(
                    f"{roles[-1]}: expected a row-major, contiguous, aligned array without a gradient, found another"
                )
        fit = [array if library.passable(array) else library.copied(array) for array in arrays]
        ready = _Ready(width, library, out_shape, library.shown(fit[0]) is fit[0])
        if library.on_host(fit[0]) and self._cuda:
            return self._through_device(ready, fit, result)
        if all(one is array for one, array in zip(given, fit if out is None else (*fit, result), strict=True)):
            # Arrays like these go straight to the plan from now on.
            self._libraries.update(dict.fromkeys(map(type, given), library))
            self._ready[tuple(map(library.signature, given))] = ready
        made = self._run(ready, fit, result)
        return made if out is None else out

    def _of_one_library(self, given: Sequence[Any], roles: Sequence[str]) -> tuple[Library, list[Any]]:
        """Find the library of all arrays, and give them as its own; each is checked by the library."""
        found = [library_of(array, role) for array, role in zip(given, roles, strict=False)]
        library = found[0][0]
        for (other, array), role in zip(found, roles, strict=False):
            other.check(array, role)
            if type(other) is not type(library) or other.on_host(array) != library.on_host(found[0][1]):
                found_type = f"found {type(array)}: convert it"
                raise OperandError(f"{role}: expected an array of the operands' library and device, {found_type}")
            if not self._cuda and not library.on_host(array):
                raise OperandError(
                    f"{role}: expected an array on the host, where the operator was compiled, found one on a GPU: "
                    "compile with device='cuda', or copy it to the host"
                )
        return library, [array for _, array in found]

    def _through_device(self, ready: _Ready, operands: Sequence[Any], out: Any) -> Any:
        """Copy the host's operands to the GPU, compute, and copy the result back."""
        library, target = ready.library, open_target(self.device)
        arrays = [target.upload(library.shown(array)) for array in operands]
        result = target.empty(ready.out_shape, self._matrix.dtype.numpy)
        on_gpu, arrays = self._of_one_library(arrays, ROLES[self.op])
        self._run(ready._replace(library=on_gpu, as_they_are=True), arrays, result)
        made = library.empty(ready.out_shape, operands[0]) if out is None else out
        np.copyto(library.shown(made), target.download(result))
        return made

    def _plan_call(self, width: int, arrays: Sequence[Any]) -> None:
        """Plan the width of a call with these arrays, where that is needed and allowed."""
        if width in self._planned:
            return
        known = ", ".join(map(str, self.widths))
        if self._asked.other_width == "raise":
            raise ProblemError(
                f"{self.op}: expected J out of the widths that were compiled, {known}, found {width}: compile with "
                "this width, or with other_width='plan'"
            )
        if self._turns.capturing(arrays):
            raise BuildError(
                f"{self.op}: expected a planned width ({known}) while a stream captures a graph, found J = {width}: "
                f"call plan({width}) before the capture"
            )
        self.plan(width)

    def plan(self, width: int) -> None:
        """Plan products of one J now, as a CUDA graph needs it before the capture; nothing where J is planned.

        Raises
        ------
        ProblemError
            The width is illegal.
        BuildError
            No implementation can be built, or the operator was loaded and this process does not know one of those to
            choose among.
        """
        width = checked_width(width)
        with self._planning:
            if width not in self._planned:
                self.choose(width)
                self._note(width, self._chosen[width].plan)
                self._planned[width] = self._chosen.pop(width)

    def begin(self, width: int) -> None:
        """Let other cores compile what `plan` will need, while the caller plans other operators."""
        width = checked_width(width)
        if width not in self._planned:
            begin_width(self._values.current(), self._asked, width)

    def choose(self, width: int) -> None:
        """Do the part of `plan` that does not wait for the extension, which a first process builds meanwhile."""
        width = checked_width(width)
        with self._planning:
            if width not in self._planned.keys() | self._chosen:
                self._chosen[width] = plan_width(self._values.current(), self._asked, width)

    def _note(self, width: int, plan: Plan) -> None:
        """Let the extension make the plan's launches, where it can; no call of this width comes before."""
        if self._lasting:
            self._share(LAUNCHER.wait())
            if self._launches is not None:
                self._launches.add(width, plan)

    def _share(self, extension: Any | None) -> None:
        """Let the extension, where there is one, make launches beside Python's; no call comes before."""
        if extension is not None and self._launches is None:
            from spmark.impls.operator.launches import Launches

            self._turns.share(extension)
            self._launches = Launches(extension, self._turns)

    def tune(self, width: int, *, budget_s: float | None = None, runs: int | None = None) -> None:
        """Choose the plan of one J anew, in a race of the same implementations; calls take it from now on.

        A CUDA graph that was captured before replays the plan of then, whose memory is given back: capture anew.

        Parameters
        ----------
        width : int
            J, planned or not.
        budget_s, runs
            As `spmark.compile` takes them.

        Raises
        ------
        ProblemError, BuildError
            As `plan`.
        """
        width = checked_width(width)
        budget_s, runs = limits_of(budget_s, runs)
        asked = replace(self._asked, budget_s=budget_s, runs=runs)
        with self._planning:
            chosen = plan_width(self._values.current(), asked, width)
            self._note(width, chosen.plan)
            self._planned[width] = chosen
            self._values.forget(width)

    def update_values(self, values: Any) -> None:
        """Take new values of A for the same pattern; what was searched stays as it is.

        The first call finds out where plans keep each value, by building them again with values that count; later
        calls are a copy and a gather on the device. A plan that keeps values in another way is built again each time,
        without a search.

        Parameters
        ----------
        values : (nnz,) array
            Of NumPy, CuPy or PyTorch, of the operator's dtype, in the order of `pattern`: ``a.data`` of a CSR of SciPy
            with sorted columns. All are finite, which is not checked.

        Raises
        ------
        OperandError
            The array does not fit.
        ProblemError
            The operator was compiled with ``values="constant"``.
        BuildError
            A stream captures a graph, and more than copies on the device would be needed.
        """
        if self._asked.values == "constant":
            raise ProblemError("update_values: expected an operator compiled with values='variable', found 'constant'")
        library, array = self._checked_values(values)
        if self._turns.capturing([array]) and (library.on_host(array) or not self._values.is_ready()):
            raise BuildError(
                "update_values: expected values on the GPU, and an earlier update after which every plan takes values "
                "in place, while a stream captures a graph: update once before the capture"
            )
        with self._planning:
            self._chosen.clear()
            self._values.update(library.shown(array if library.passable(array) else library.copied(array)), array)
            if self._launches is not None:
                self._launches.keep(self._planned)

    def _checked_values(self, values: Any) -> tuple[Library, Any]:
        """Check new values; give their library, and them as an array of it."""
        known = self._libraries.get(values.__class__)
        if known is not None and known.signature(values) in self._known_values:
            return known, values
        role = "update_values"
        library, (array,) = self._of_one_library([values], [role])
        check_dtype(array, self._matrix.dtype, role)
        check_shape(array, (self.pattern.nnz,), role)
        if array is values and library.passable(array):
            self._libraries[values.__class__] = library
            self._known_values.add(library.signature(values))
        return library, array

    def compute_with(self, values: Any, *operands: Any, out: Any = None) -> Any:
        """Take new values and compute, with no other such call between the two.

        Parameters
        ----------
        values
            As `update_values` takes them.
        *operands, out
            As a call takes them.

        Returns
        -------
        array
            As a call's.
        """
        with self._planning:
            self.update_values(values)
            return self(*operands, out=out)

    def explain(self) -> str:
        """Describe in lines of text what was chosen for each width, why, and what it cost."""
        from spmark.impls.operator.explain import explained  # which a product does not wait for

        return "\n".join([repr(self).strip("<>"), *explained(self._planned, self.pattern.nnz, self.device.kind)])

    def save(self, path: Path | str) -> None:
        """Write the operator into a file, from which `spmark.load` makes it again without a search.

        The file holds the matrix, the choices and the results of searches; it holds no code. It fits the same kind of
        device and the same version of the implementations.

        Raises
        ------
        BuildError
            The file cannot be written.
        """
        from spmark.impls.operator.saved import path_of, write

        with self._planning:
            write(path_of(path), self._values.current(), self._asked, self._planned)


def _streams() -> Any:
    from spmark.impls.operator.gpu import CudaStreams

    return CudaStreams()
