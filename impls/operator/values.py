"""Where plans keep A's values, so that new values of the same pattern can be written into them without a build."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.auto.race import Chosen
from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import SpmarkError
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.problem import DType, Op
from spmark.impls.operator.choose import Asked, build
from spmark.impls.operator.matrices import OwnedMatrix
from spmark.impls.operator.turns import Turns
from spmark.impls.runtime.target import open_target


@dataclass(frozen=True, eq=False)
class Slots:
    """The array of a plan that holds A's values, and the origin of each of its elements.

    Parameters
    ----------
    values : device array
        `Plan.values`, or the first nnz elements of it where it holds the values in CSR order.
    origins : device array of int32, optional
        Same shape: the position in CSR order of each element's value, nnz where the element is padding. None for values
        in CSR order.
    dtype : DType
        Of the operator; ``values`` hold its elements, or, in plans of the host, their numbers in float32.
    """

    values: Any
    origins: Any | None
    dtype: DType

    def write(self, latest: Any, xp: Any) -> None:
        """Enqueue the writing of new values, without an allocation.

        Parameters
        ----------
        latest : (nnz + 1,) device array
            Values in the order that `origins` counts in, and then 0.
        xp : module
            NumPy or CuPy.
        """
        if latest.dtype != self.values.dtype:
            latest = self.dtype.numbers(latest).astype(self.values.dtype)
        if self.origins is None:
            self.values[:] = latest[:-1]
        else:
            how = {"mode": "clip"} if xp is np else {}  # without it NumPy writes to a copy first
            xp.take(latest, self.origins, out=self.values, **how)

    def hold(self, expected: Any) -> bool:
        """Tell whether the array holds ``expected``, elements of the operator's type in the array's shape."""
        if expected.dtype != self.values.dtype:
            expected = self.dtype.numbers(expected)
        return bool((self.values == expected).all())


def find_slots(
    plan: Plan, latest: Any, dtype: DType, build: Callable[[NDArray[np.float32]], Plan], xp: Any
) -> Slots | None:
    """Find where a plan keeps each value: in CSR order, or else by building it again with values that count.

    Value p of the k-th build is the k-th digit of p, plus 1, so that the builds together tell the position of every
    element; padding stays 0. One build does for 16 million non-zeros of float32, two for 4 million of float16, and
    three for 16 million of bfloat16.

    Parameters
    ----------
    plan : Plan
    latest : (nnz + 1,) device array
        The values that the plan holds now, in CSR order, and then 0.
    dtype : DType
    build : callable
        Builds the plan with other values, (nnz,) float32, by the same config.
    xp : module
        NumPy or CuPy.

    Returns
    -------
    Slots or None
        None where the plan names no array, where the array lacks a value or holds something else, or where a build
        gives another config: the plan then has to be built again for new values.
    """
    nnz = latest.size - 1
    if plan.values is None:
        return None
    if plan.values_in_order:
        found = Slots(plan.values.reshape(-1)[:nnz], None, dtype)
        return found if found.values.size == nnz and found.hold(latest[:-1]) else None
    origins = _origins(plan, nnz, dtype, build, xp)
    found = Slots(plan.values, origins, dtype)
    if origins is None or not found.hold(xp.take(latest, origins)):
        return None
    return replace(found, origins=origins.astype(xp.int32))


def _origins(plan: Plan, nnz: int, dtype: DType, build: Callable[[NDArray[np.float32]], Plan], xp: Any) -> Any | None:
    """Give the position of each element's value, nnz for padding; None unless each position is met."""
    assert plan.values is not None
    shape, unit, base = plan.values.shape, 1, (1 << dtype.digits) - 1  # every number up to the base itself is exact
    origins, padding, met = xp.zeros(shape, xp.int64), xp.zeros(shape, bool), xp.zeros(nnz + 1, bool)
    while unit == 1 or unit < nnz:
        try:
            again = build((np.arange(nnz) // unit % base + 1).astype(np.float32))
        except SpmarkError:  # a search among plans may refuse sums that 16 bits do not hold
            return None
        # A search that measures may choose another layout of one shape, which equal values of A would not betray.
        if again.values is None or again.values.shape != shape or dict(again.config) != dict(plan.config):
            return None
        digits = dtype.numbers(again.values).astype(xp.int64) - 1
        padding |= digits < 0
        origins += unit * digits
        unit *= base
    origins[padding] = nnz
    if bool(((origins < 0) | (origins > nnz)).any()):
        return None
    met[origins] = True
    return origins if bool(met[:nnz].all()) else None


class ChangingValues:
    """A's values, as the last update left them, on the host and on the device.

    Parameters
    ----------
    matrix : OwnedMatrix
        A as it was compiled.
    asked : Asked
    turns : Turns
        Of the operator: an update is a turn, as calls are.
    plans : dict
        Of the operator, by J. A plan that does not tell where it keeps values is replaced at each update.
    order : (nnz,) integers, optional
        Where updates hold each value of the matrix, such as the positions in the CSR of its transpose. By default
        updates are in the matrix's own order.
    """

    def __init__(
        self,
        matrix: OwnedMatrix,
        asked: Asked,
        turns: Turns,
        plans: dict[int, Chosen],
        order: NDArray[np.int64] | None = None,
    ) -> None:
        self._matrix, self._asked, self._turns, self._order = matrix, asked, turns, order
        self._plans = plans if asked.op is Op.SPMM or asked.scaled else {}  # those that read A's values
        self._slots: dict[int, Slots | None] = {}
        self._target = None if asked.device.kind is DeviceKind.CPU else open_target(asked.device)
        self._xp = np if self._target is None else self._target.xp
        self._latest: Any = None
        """Values in the order of updates, and then 0."""
        self._places: Any = None
        """Where the latest values have each of the matrix, and 0, on the device; None for the same order."""
        self._stale = False

    def update(self, values: Any, given: Any) -> None:
        """Enqueue the writing of new values into every plan; a plan without slots is built again.

        Parameters
        ----------
        values : (nnz,) array
            Of the matrix's type, as a plan would be shown it, on the device or the host.
        given : array
            The array that the caller passed, which tells the stream.
        """
        if self._latest is None:
            self._turns.order()  # the search for slots then waits for all calls before
            latest = np.append(self._matrix.values, self._matrix.dtype.numpy.type(0))
            if self._order is not None:
                latest[self._order] = self._matrix.values
                places = np.append(self._order, self._order.size)
                self._places = places if self._target is None else self._xp.asarray(places.astype(np.int32))
            self._latest = self._xp.asarray(latest)
        for width in self._plans.keys() - self._slots.keys():
            self._slots[width] = self._find(width)
        self._turns.take(self._write, [given], values)
        self._stale = True
        for width, slots in self._slots.items():
            if slots is None:
                self._plans[width] = replace(self._plans[width], plan=self._built(width, self.current()))

    def forget(self, width: int) -> None:
        """Take note that a width has another plan, which was built with the current values."""
        self._slots.pop(width, None)

    def is_ready(self) -> bool:
        """Tell whether an update would only enqueue copies, which a capture of a graph allows."""
        return self._latest is not None and all(self._slots.get(width) for width in self._plans)

    def current(self) -> OwnedMatrix:
        """Give A with the values of the last update, after everything enqueued before."""
        if self._stale:
            self._wait()
            values = self._in_order()[:-1]
            values = values.copy() if self._target is None else self._target.download(values)
            self._matrix, self._stale = self._matrix.with_values(values), False
        return self._matrix

    def _write(self, values: Any) -> None:
        where: AbstractContextManager[Any] = nullcontext()
        if self._asked.device.kind is DeviceKind.CUDA:
            from spmark.impls.operator.gpu import adopted, on_stream_of

            where, values = on_stream_of([values]), adopted(values)
        with where:
            self._latest[:-1] = values
            for slots in self._slots.values():
                if slots is not None:
                    slots.write(self._latest, self._xp)

    def _find(self, width: int) -> Slots | None:
        dtype = self._matrix.dtype.searched or DType.FLOAT32

        def counted(values: NDArray[np.float32]) -> Plan:
            return self._built(width, self._matrix.with_values(dtype.stored(values)))

        found = find_slots(self._plans[width].plan, self._in_order(), dtype, counted, self._xp)
        if found is not None and self._places is not None:
            origins = self._places[:-1] if found.origins is None else self._xp.take(self._places, found.origins)
            found = replace(found, origins=origins)
        self._wait()
        return found

    def _in_order(self) -> Any:
        """Give the latest values in the matrix's order, and then 0."""
        return self._latest if self._places is None else self._xp.take(self._latest, self._places)

    def _built(self, width: int, matrix: OwnedMatrix) -> Plan:
        """Build the plan of a width with the values of a matrix, and wait until calls on any stream find it."""
        problem, chosen = matrix.problem(self._asked.op, width, self._asked.scaled), self._plans[width]
        plan = build(problem, self._asked.device, chosen.choice, chosen.held).plan
        self._wait()
        return plan

    def _wait(self) -> None:
        if self._target is not None:
            self._target.synchronize()
