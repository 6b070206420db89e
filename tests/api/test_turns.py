"""Calls take turns: threads on the host, and streams of a GPU, of which recorded ones stand in here."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import spmark
from spmark.impls.core.errors import BuildError
from spmark.impls.operator.turns import Turns

THREADS = 8


@dataclass
class Stream:
    ptr: int


@dataclass
class Recorded:
    """Streams that record what is asked of them; an array is its own stream."""

    captures: set[int] = field(default_factory=set)
    events: list[tuple[str, int]] = field(default_factory=list)

    def current(self, arrays: Any) -> Any:
        return arrays[0]

    def capturing(self, stream: Any) -> bool:
        return stream.ptr in self.captures

    def wait(self, stream: Any) -> None:
        self.events.append(("wait", stream.ptr))

    def mark(self, stream: Any) -> None:
        self.events.append(("mark", stream.ptr))

    def run(self, turns: Turns, ptr: int) -> None:
        turns.take(lambda: self.events.append(("run", ptr)), [Stream(ptr)])


def test_another_stream_waits_for_the_call_before_and_the_same_stream_does_not() -> None:
    streams = Recorded()
    turns = Turns(streams)
    for ptr in (7, 7, 9, 7):
        streams.run(turns, ptr)
    ends = [("run", 7), ("mark", 7), ("run", 7), ("mark", 7)]
    assert streams.events == [*ends, ("wait", 9), ("run", 9), ("mark", 9), ("wait", 7), ("run", 7), ("mark", 7)]


def test_a_call_that_fails_is_waited_for_all_the_same() -> None:
    streams = Recorded()
    turns = Turns(streams)
    with pytest.raises(ZeroDivisionError):
        turns.take(lambda: 1 // 0, [Stream(3)])
    streams.run(turns, 4)
    assert streams.events == [("mark", 3), ("wait", 4), ("run", 4), ("mark", 4)]


def test_while_a_graph_is_captured_nothing_waits_and_nothing_is_marked() -> None:
    streams = Recorded(captures={5})
    turns = Turns(streams)
    for ptr in (3, 5, 4):
        streams.run(turns, ptr)
    assert ("run", 5) in streams.events
    assert [event for event in streams.events if event[1] == 5] == [("run", 5)]
    assert streams.events[-3:] == [("wait", 4), ("run", 4), ("mark", 4)], "4 waits for 3"
    assert turns.capturing([Stream(5)])
    assert not turns.capturing([Stream(3)])


def test_the_default_stream_of_each_thread_is_a_stream_of_its_own() -> None:
    streams = Recorded()
    turns = Turns(streams)
    streams.run(turns, 2)
    streams.run(turns, 2)
    assert ("wait", 2) not in streams.events
    other = threading.Thread(target=streams.run, args=(turns, 2))
    other.start()
    other.join()
    assert streams.events[-3:] == [("wait", 2), ("run", 2), ("mark", 2)]


@dataclass
class Event:
    """Records on which streams it is recorded, and on which it is waited for."""

    seen: list[tuple[str, int]] = field(default_factory=list)

    def record(self, stream: Stream) -> None:
        self.seen.append(("record", stream.ptr))

    def stream(self, ptr: int) -> Any:
        made: Any = Stream(ptr)
        made.wait_event = lambda event: self.seen.append(("wait", ptr))
        return made


def test_a_capture_refuses_what_would_be_planned(a: Any, b: np.ndarray) -> None:
    op = spmark.compile(a, width=6, use="scipy_cpu", device="cpu")
    expected, other = op(b), np.ascontiguousarray(b[:, :5])
    streams = Recorded(captures={id(b)})
    streams.current = lambda arrays: Stream(id(b))  # type: ignore[method-assign]
    op._turns = Turns(streams)
    with pytest.raises(BuildError, match=r"expected a planned width \(6\) while a stream captures a graph, found J ="):
        op(other)
    with pytest.raises(BuildError, match="update_values: expected values on the GPU, and an earlier update"):
        op.update_values(a.data)
    np.testing.assert_array_equal(op(b), expected)
    op.plan(5)
    assert op(other).shape == (40, 5)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("op_name", ["spmm", "sddmm"])
def test_threads_share_an_operator(op_name: Any, dtype: str, a: Any) -> None:
    op = spmark.compile(a, op_name, width=6, dtype=dtype, use="scipy_cpu", device="cpu")
    rng = np.random.default_rng(0)
    shapes = [(25, 6)] if op_name == "spmm" else [(40, 6), (25, 6)]
    given = [[rng.standard_normal(shape).astype(dtype) for shape in shapes] for _ in range(THREADS)]
    expected = [op(*operands) for operands in given]
    start = threading.Barrier(THREADS)

    def work(number: int) -> list[np.ndarray]:
        start.wait()
        out = np.empty_like(expected[number])
        return [op(*given[number], out=out).copy() for _ in range(25)] + [op(*given[number]) for _ in range(25)]

    with ThreadPoolExecutor(THREADS) as pool:
        for number, results in enumerate(pool.map(work, range(THREADS))):
            for result in results:
                np.testing.assert_array_equal(result, expected[number])


def test_threads_plan_a_width_once(a: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from spmark.impls.operator import compiled

    planned: list[int] = []
    plan_width = compiled.plan_width
    monkeypatch.setattr(compiled, "plan_width", lambda *args: planned.append(args[2]) or plan_width(*args))
    op = spmark.compile(a, width=6, use="numba_cpu", device="cpu")
    dense, start = np.ones((25, 4), np.float32), threading.Barrier(THREADS)

    def work(_: int) -> np.ndarray:
        start.wait()
        return op(dense)

    with ThreadPoolExecutor(THREADS) as pool:
        results = list(pool.map(work, range(THREADS)))
    assert planned == [4]
    for result in results:
        np.testing.assert_allclose(result, a @ dense, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["scipy_cpu", "blas_cpu"])
def test_a_product_has_either_all_old_or_all_new_values(name: str) -> None:
    a = sparse.csr_array(np.ones((200, 50), np.float32))
    op, dense = spmark.compile(a, width=4, use=name, device="cpu"), np.ones((50, 4), np.float32)
    ends = threading.Event()

    def change() -> None:
        factor = 1
        while not ends.is_set():
            factor = 3 - factor
            op.update_values(np.full(a.nnz, factor, np.float32))

    writer = threading.Thread(target=change)
    writer.start()
    try:
        seen = [np.unique(op(dense)) for _ in range(300)]
    finally:
        ends.set()
        writer.join()
    assert {one.size for one in seen} == {1}
    assert {float(one[0]) for one in seen} <= {50.0, 100.0}


def test_no_other_values_come_between_an_update_and_its_product(a: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    op, dense = spmark.compile(a, width=6, use="scipy_cpu", device="cpu"), np.ones((25, 6), np.float32)
    ones, updated = np.ones(a.nnz, np.float32), threading.Event()
    expected, update = op.compute_with(ones, dense), type(op).update_values

    def slow(self: Any, values: Any) -> None:
        update(self, values)
        updated.set()
        time.sleep(0.1)

    monkeypatch.setattr(type(op), "update_values", slow)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(op.compute_with, ones, dense)
        updated.wait()
        op.compute_with(2 * ones, dense)
        np.testing.assert_array_equal(first.result(), expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_and_operands_go_together(dtype: str, a: Any) -> None:
    op, dense = spmark.compile(a, width=6, dtype=dtype, use="scipy_cpu", device="cpu"), np.ones((25, 6), dtype)
    given = [np.full(a.nnz, number, dtype) for number in range(THREADS)]

    def work(number: int) -> list[np.ndarray]:
        return [op.compute_with(given[number], dense) for _ in range(30)]

    ones = op.compute_with(np.ones(a.nnz, dtype), dense)
    with ThreadPoolExecutor(THREADS) as pool:
        for number, results in enumerate(pool.map(work, range(THREADS))):
            for result in results:
                np.testing.assert_array_equal(result, number * ones)
