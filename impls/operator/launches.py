"""Calls that cost what a launch costs: a plan's launches are noted once, and an extension in C++ makes them.

The extension (``launcher.cpp``) takes every plan whose launches alone compute what the plan computes. Other plans, all
where it cannot be built, and calls that need a copy or a message take the path in Python.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.interfaces import DeviceArray
from spmark.impls.core.problem import DType
from spmark.impls.operator.arrays import Library
from spmark.impls.operator.gpu import CupyArrays
from spmark.impls.operator.turns import Turns
from spmark.impls.runtime.noting import Noted, noted
from spmark.impls.runtime.plan import DevicePlan, OneLaunchPlan
from spmark.impls.runtime.target import Target
from spmark.impls.runtime.withcupy import cupy

_LOG = logging.getLogger("spmark")
_TOLERANCE = {"float64": 1e-12, "float32": 1e-4, "float16": 2e-2, "uint16": 5e-2}
"""Largest difference of two runs that add up in any order, over the largest magnitude; uint16 is bfloat16."""
_DRAWN = 131_071
"""Random numbers of an operand, which repeat: a prime, so that neighbouring rows differ."""
_UNWRITTEN = 0xFF
"""Bytes of what a run has to write before it reads it: not a number in every type of floats."""
_COMPARED = 1 << 18
"""Elements that are copied and compared at once: as many as a core's cache holds, since new memory takes longer."""
Width = int | tuple[int, int]
"""J, or the two widths of a relational product."""
Span = tuple[int, int]
"""Address and bytes of an array."""
Launch = tuple[Noted, list[int], list[tuple[int, int, int]]]
"""A launch; its arguments, each in the first bytes of a word; and those that are addresses of operands, result and
buffers: the word, the array's position, and bytes from the array's first."""


class Held(NamedTuple):
    """A plan, and what the extension has of it."""

    plan: Any
    made: Any
    """The extension's plan."""
    device: int
    """Number of the GPU."""


class Launches:
    """The plans of one operator whose launches the extension makes.

    Parameters
    ----------
    launcher : module
        The extension.
    turns : Turns
        Of the operator.

    Attributes
    ----------
    call : callable
        ``call(operands, out)`` on CuPy's arrays gives ``out``, or a new result where that is None; NotImplemented
        where no plan is known for such arrays.
    """

    def __init__(self, launcher: Any, turns: Turns) -> None:
        self._launcher, self._turns = launcher, turns
        self._held: dict[Width, Held] = {}
        self._fits: set[Any] = set()
        self._calls = launcher.calls(cupy.ndarray, cupy.cuda.get_current_stream, cupy.empty)
        self.call = partial(launcher.call, self._calls)

    def add(self, width: Width, plan: Any) -> None:
        """Take up the plan of a width, in the place of an earlier one, where its launches can be noted."""
        self._drop(width)
        try:
            found = noted_plan(self._launcher, self._turns, plan)
        except (MemoryError, RuntimeError) as error:  # memory for two products may be all that there is
            _LOG.info("launches of width %s are made by Python: %s", width, error)
        else:
            if found is not None:
                self._held[width] = found

    def take(self, width: Width, plan: OneLaunchPlan) -> None:
        """Take up the launch of a plan as it stands, where none of the width is held: nothing runs or is compared."""
        kernel, grid, args, shared_bytes = plan.launch
        count = len(plan.shapes[0]) + 1
        words = [one.data.ptr if isinstance(one, cupy.ndarray) else int(one) for one in args] + [0] * count
        patches = [(len(args) + at, at, 0) for at in range(count)]
        for at, (buffer, _) in enumerate(plan.buffers, count):
            patches += [(place, at, 0) for place, arg in enumerate(args) if arg is buffer]
        made = Noted(kernel.function.ptr, grid, kernel.instance.threads, args, shared_bytes, False)
        self._held[width] = _held(self._launcher, self._turns, plan, [(made, words, patches)])

    def find(self, width: Width) -> Held | None:
        """Give the plan of a width, where the extension has it."""
        return self._held.get(width)

    def keep(self, plans: Mapping[Any, Any]) -> None:
        """Drop what is no longer the plan of its width."""
        for width, held in list(self._held.items()):
            if plans[width].plan is not held.plan:
                self._drop(width)

    def run(self, width: Width, library: Library, arrays: tuple[Any, ...]) -> bool:
        """Enqueue on operands and result, which fit but for their GPU; tell whether that could be done.

        Where they are CuPy's, `call` takes arrays like these from now on.
        """
        held = self._held.get(width)
        if held is None:
            return False
        of_cupy = isinstance(library, CupyArrays)
        places = [(a.data.ptr, a.data.device_id) if of_cupy else (a.data_ptr(), a.get_device()) for a in arrays]
        addresses, devices = zip(*places, strict=True)
        if set(devices) != {held.device}:
            return False
        if of_cupy:
            signatures = tuple(map(library.signature, arrays))
            if signatures not in self._fits:
                self._fits.add(signatures)
                self._launcher.fit(self._calls, arrays, held.made)
        return bool(self._launcher.run(held.made, addresses, self._turns.stream(arrays).ptr, None))

    def _drop(self, width: Width) -> None:
        if self._held.pop(width, None) is not None:
            self._fits.clear()  # others come again with their next call
            self._launcher.forget(self._calls)


def noted_plan(launcher: Any, turns: Turns, plan: Any) -> Held | None:
    """Note the launches of a plan, and give them as the extension's plan where that computes the same.

    The plan runs while its launches are noted, and again on other operands, at other addresses. So does the extension,
    with buffers of its own in which nothing stands. None where the results differ, or where an array of the plan has
    changed that is none of its buffers: something beside the launches is at work then, such as a memset, a copy, or a
    kernel of a library.
    """
    if not isinstance(plan, DevicePlan):
        return None
    target, (shapes, out_shape) = plan.target, plan.shapes
    dtype = np.dtype(getattr(plan.dtype, "numpy", plan.dtype))
    with cupy.cuda.using_allocator(None):  # what is allocated here goes back to the driver
        first, out = [target.empty(shape, dtype) for shape in shapes], target.empty(out_shape, dtype)
        with noted() as launches:
            plan.run(first, out)
        spans = [_span(one) for one in (*first, out, *(buffer for buffer, _ in plan.buffers))]
        found = launch_list(launches, spans)
        if not set(range(len(first) + 1)) <= {source for *_, patches in found for _, source, _ in patches}:
            return None
        args = [one for launch in launches for one in launch.args if isinstance(one, cupy.ndarray)]
        held = [one for one in args if _source(one.data.ptr, spans) is None]
        before = [target.download(one) for one in held]
        operands = [target.repeated(_drawn(prod(shape), dtype, seed), shape) for seed, shape in enumerate(shapes)]
        plan.run(operands, out)
        if not all(_equal(one, target.download(other)) for one, other in zip(before, held, strict=True)):
            return None
        held_plan = _held(launcher, turns, plan, found)
        result, *others = (
            target.filled(one.shape, one.dtype, 0 if counts else _UNWRITTEN)
            for one, counts in ((out, False), *plan.buffers)
        )
        addresses, aside = (tuple(one.data.ptr for one in arrays) for arrays in ((*operands, result), others))
        launcher.run(held_plan.made, addresses, turns.stream(operands).ptr, aside)
        same = _same(target, result, out, plan.deterministic)
        counters = [one for one, (_, counts) in zip(others, plan.buffers, strict=True) if counts]
        return held_plan if same and not any(_any(target, one) for one in counters) else None


def _held(launcher: Any, turns: Turns, plan: DevicePlan, found: Sequence[Launch]) -> Held:
    """Give the extension's plan of some launches."""
    (shapes, out_shape), itemsize = plan.shapes, plan.dtype.itemsize
    sizes = tuple([itemsize * prod(shape) for shape in (*shapes, out_shape)])
    numbers, owned = array("Q"), array("Q")
    for (function, grid, threads, _, shared_bytes, overlap), words, patches in found:
        numbers.extend((function, *grid, threads, shared_bytes, overlap, len(words), *words, len(patches)))
        numbers.extend(chain(*patches))
    for buffer, counts in plan.buffers:
        owned.extend((*_span(buffer), counts))
    device = int(plan.target.location.partition(":")[2])
    made = launcher.plan(turns.shared, device, sizes, numbers.tobytes(), owned.tobytes())
    return Held(plan, made, device)


def launch_list(launches: Sequence[Noted], spans: Sequence[Span]) -> list[Launch]:
    """Give launches with the places at which addresses of operands, result and buffers stand.

    Parameters
    ----------
    launches : sequence of Noted
    spans : sequence of (int, int)
        Address and bytes of each of these arrays.
    """
    from spmark.impls.runtime.overlap import argument_words

    found = []
    for one in launches:
        words = [int(word) % 2**64 for word in argument_words(one.args, cupy.ndarray)]
        patches = []
        for place, arg in enumerate(one.args):
            source = _source(words[place], spans) if isinstance(arg, cupy.ndarray) else None
            if source is not None:
                patches.append((place, source, words[place] - spans[source][0]))
        found.append((one, words, patches))
    return found


def _span(one: Any) -> Span:
    return one.data.ptr, one.nbytes


def _source(address: int, spans: Sequence[Span]) -> int | None:
    """Give the span that an address lies in."""
    return next((at for at, (start, size) in enumerate(spans) if start <= address < start + size), None)


def _drawn(count: int, dtype: np.dtype[Any], seed: int) -> NDArray[Any]:
    """Draw numbers between -1 and 1: as many as asked for, but `_DRAWN` at most."""
    values = np.random.default_rng(seed).uniform(-1, 1, min(_DRAWN, count)).astype(np.float32)
    return DType.BFLOAT16.stored(values) if dtype == np.uint16 else values.astype(dtype)


def _equal(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Compare bit by bit."""
    bits = f"i{one.itemsize}"
    return np.array_equal(one.view(bits), other.view(bits))


def _any(target: Target, array: DeviceArray) -> bool:
    """Tell whether anything but zeros stands there; large arrays are not copied for that."""
    return bool((target.download(array) if array.size <= _COMPARED else array).any())


def _same(target: Target, found: DeviceArray, expected: DeviceArray, deterministic: bool) -> bool:
    """Compare two results on the target: bit by bit, or within what the order of sums explains."""
    both, step = (found.reshape(-1), expected.reshape(-1)), _COMPARED
    parts = ([target.download(one[at : at + step]) for one in both] for at in range(0, found.size, step))
    if deterministic:
        return all(_equal(*part) for part in parts)
    tolerance, kind = _TOLERANCE[found.dtype.name], np.result_type(found.dtype, np.float32)
    numbers = DType.BFLOAT16.numbers if found.dtype == np.uint16 else lambda part: part.astype(kind, copy=False)
    off, largest = 0.0, 1.0
    for one, other in (map(numbers, part) for part in parts):
        off, largest = np.maximum(off, np.abs(one - other).max()), np.maximum(largest, np.abs(other).max())
    return bool(np.isfinite(largest) and off <= tolerance * largest)  # what is not a number is not below it
