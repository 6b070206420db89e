"""Where plans keep A's values, so that new values of the same pattern can be written into them without a build."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import SpmarkError
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.problem import DType, Op
from spmark.impls.operator.choose import Asked, ChosenPlan, build
from spmark.impls.operator.matrices import OwnedMatrix
from spmark.impls.operator.turns import Turns
from spmark.impls.runtime.target import open_target

_DIGITS = {DType.FLOAT32: (1 << 24) - 1, DType.FLOAT16: (1 << 11) - 1}
"""Base of the digits that count positions: every number up to the base itself is exact in the type."""


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
    """

    values: Any
    origins: Any | None

    def write(self, latest: Any, xp: Any) -> None:
        """Enqueue the writing of new values, without an allocation.

        Parameters
        ----------
        latest : (nnz + 1,) device array
            Values in CSR order, and then 0.
        xp : module
            NumPy or CuPy.
        """
        if self.origins is None:
            self.values[:] = latest[:-1]
        else:
            xp.take(latest, self.origins, out=self.values)


def find_slots(
    plan: Plan, latest: Any, dtype: DType, build: Callable[[NDArray[np.float32]], Plan], xp: Any
) -> Slots | None:
    """Find where a plan keeps each value: in CSR order, or else by building it again with values that count.

    Value p of the k-th build is the k-th digit of p, plus 1, so that the builds together tell the position of every
    element; padding stays 0. One build does for 16 million non-zeros of float32, two for 4 million of float16.

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
        present = plan.values.reshape(-1)[:nnz]
        return Slots(present, None) if present.size == nnz and bool((present == latest[:-1]).all()) else None
    origins = _origins(plan, nnz, _DIGITS[dtype], build, xp)
    if origins is None or not bool((xp.take(latest, origins) == plan.values).all()):
        return None
    return Slots(plan.values, origins.astype(xp.int32))


def _origins(plan: Plan, nnz: int, base: int, build: Callable[[NDArray[np.float32]], Plan], xp: Any) -> Any | None:
    """Give the position of each element's value, nnz for padding; None unless each position is met."""
    assert plan.values is not None
    shape = plan.values.shape
    origins, padding, unit = xp.zeros(shape, xp.int64), xp.zeros(shape, bool), 1
    positions = np.arange(nnz)
    while unit == 1 or unit < nnz:
        try:
            again = build((positions // unit % base + 1).astype(np.float32))
        except SpmarkError:  # a search among plans may refuse sums that float16 does not hold
            return None
        counted = again.values
        # A search that measures may choose another layout of one shape, which equal values of A would not betray.
        if counted is None or counted.shape != shape or dict(again.config) != dict(plan.config):
            return None
        digits = counted.astype(xp.int64) - 1
        padding |= digits < 0
        origins += unit * digits
        unit *= base
    origins[padding] = nnz
    inside = bool(((origins >= 0) & (origins <= nnz)).all())
    met = xp.zeros(nnz + 1, bool)
    met[origins[(origins >= 0) & (origins <= nnz)]] = True
    return origins if inside and bool(met[:nnz].all()) else None


@dataclass(eq=False)
class WidthPlan:
    """The plan of one width."""

    choice: ChosenPlan
    slots: Slots | None = None
    """Where the plan keeps A's values; looked for at the first update."""
    sought: bool = False
    """Whether the slots have been looked for."""


class ChangingValues:
    """A's values, as the last update left them, on the host and on the device.

    Parameters
    ----------
    matrix : OwnedMatrix
        A as it was compiled.
    asked : Asked
    turns : Turns
        Of the operator: an update is a turn, as calls are.
    """

    def __init__(self, matrix: OwnedMatrix, asked: Asked, turns: Turns) -> None:
        self._matrix, self._asked, self._turns = matrix, asked, turns
        self._target = None if asked.device.kind is DeviceKind.CPU else open_target(asked.device)
        self._xp = np if self._target is None else self._target.xp
        self._latest: Any = None
        self._stale = False

    def update(self, values: Any, given: Any, plans: Mapping[int, WidthPlan]) -> None:
        """Enqueue the writing of new values into every plan; a plan without slots is built again.

        Parameters
        ----------
        values : (nnz,) array
            Of the matrix's type, as a plan would be shown it, on the device or the host.
        given : array
            The array that the caller passed, which tells the stream.
        plans : mapping
            By J.
        """
        if self._latest is None:
            self._latest = self._xp.asarray(np.append(self._matrix.values, self._matrix.dtype.numpy.type(0)))
        reading = self._reading(plans)
        for width, planned in reading.items():
            if not planned.sought:
                planned.slots, planned.sought = self._find(width, planned.choice), True
                self._wait()
        slots = [planned.slots for planned in reading.values() if planned.slots is not None]
        self._turns.take(partial(self._write, values, slots), [given])
        self._stale = True
        for width, planned in reading.items():
            if planned.slots is None:
                problem, choice = self.current().problem(self._asked.op, width, self._asked.scaled), planned.choice
                plan = build(problem, self._asked.device, choice.name, choice.held, choice.config).plan
                planned.choice = replace(choice, plan=plan)
                self._wait()

    def is_ready(self, plans: Mapping[int, WidthPlan]) -> bool:
        """Tell whether an update would only enqueue copies, which a capture of a graph allows."""
        return self._latest is not None and all(planned.slots is not None for planned in self._reading(plans).values())

    def current(self) -> OwnedMatrix:
        """Give A with the values of the last update, after everything enqueued before."""
        if self._stale:
            self._wait()
            values = self._latest[:-1]
            values = values.copy() if self._target is None else self._target.download(values)
            self._matrix, self._stale = self._matrix.with_values(values), False
        return self._matrix

    def _reading(self, plans: Mapping[int, WidthPlan]) -> Mapping[int, WidthPlan]:
        """Give the plans that read values of A."""
        return plans if self._asked.op is Op.SPMM or self._asked.scaled else {}

    def _write(self, values: Any, slots: Sequence[Slots]) -> None:
        where: AbstractContextManager[Any] = nullcontext()
        if self._asked.device.kind is DeviceKind.CUDA:
            from spmark.impls.operator.gpu import adopted, on_stream_of

            where, values = on_stream_of([values]), adopted(values)
        with where:
            self._latest[:-1] = values
            for one in slots:
                one.write(self._latest, self._xp)

    def _find(self, width: int, choice: ChosenPlan) -> Slots | None:
        asked, dtype = self._asked, self._matrix.dtype.searched or DType.FLOAT32

        def counted(values: NDArray[np.float32]) -> Plan:
            problem = self._matrix.with_values(values.astype(dtype.numpy)).problem(asked.op, width, asked.scaled)
            return build(problem, asked.device, choice.name, choice.held, choice.config).plan

        return find_slots(choice.plan, self._latest, dtype, counted, self._xp)

    def _wait(self) -> None:
        """Wait until what was built is on the device, so that calls on any stream find it."""
        if self._target is not None:
            self._target.synchronize()
