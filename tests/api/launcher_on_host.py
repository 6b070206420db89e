"""Launches by the extension, with a driver and plans on the host; run by test_launches.py. Plans multiply by 3."""

from __future__ import annotations

import gc
import resource
import sys
import threading
import weakref
from array import array
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cupy
import numpy as np
import torch
from fake_driver import FakeDriver, from_host, on_host
from scipy import sparse

from spmark.impls.auto.race import Choice, Chosen
from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import BuildError, OperandError
from spmark.impls.core.problem import DType, Op
from spmark.impls.core.relational import RelationalCsr
from spmark.impls.operator import compiled
from spmark.impls.operator.choose import Asked
from spmark.impls.operator.extension import LAUNCHER
from spmark.impls.operator.gpu import CupyArrays
from spmark.impls.operator.launches import Launches, noted_plan
from spmark.impls.operator.matrices import OwnedMatrix
from spmark.impls.operator.relations import RelationalMatrix, _Planned
from spmark.impls.operator.turns import Turns
from spmark.impls.runtime.device import find
from spmark.impls.runtime.noting import note
from spmark.impls.runtime.plan import DevicePlan, OneLaunchPlan
from spmark.impls.runtime.target import Target

DRIVER = FakeDriver(Path(sys.argv[1]))
SPEC = find("host-simt").model_copy(update={"kind": DeviceKind.CUDA})
DRAWN = np.random.default_rng(5)
ROWS, COLS, WIDTH = 4, 4, 4
COUNT = ROWS * WIDTH


class HostTarget(Target):
    """Arrays of CuPy over the host's memory."""

    xp = cupy
    location = "cuda:0"

    def upload(self, array: Any) -> Any:
        return on_host(np.ascontiguousarray(array))

    def empty(self, shape: Any, dtype: Any) -> Any:
        return on_host(np.full(shape, 7, dtype))

    def filled(self, shape: Any, dtype: Any, byte: int) -> Any:
        return on_host(super().filled(shape, dtype, byte))

    def repeated(self, numbers: Any, shape: Any) -> Any:
        return on_host(super().repeated(numbers, shape))

    def download(self, array: Any) -> Any:
        return from_host(array)

    def load(self, instances: Any) -> Any:
        raise NotImplementedError

    def synchronize(self) -> None:
        pass


class TriplePlan(DevicePlan):
    """One launch, or two with sums and a counter between them; ``beside`` is done before them in Python."""

    deterministic = True

    def __init__(self, counted: bool = False, beside: Any = None, count: int = COUNT) -> None:
        shapes = SimpleNamespace(operand_shapes=((COLS, WIDTH),), out_shape=(ROWS, WIDTH), dtype=np.dtype(np.float32))
        shapes.matrix = SimpleNamespace(nnz=COUNT)
        shapes.matrix = SimpleNamespace(nnz=0)
        super().__init__(shapes, HostTarget(SPEC), {})
        self.kernel, self.beside, self.count, self.runs = "triple", beside, np.int32(count), 0
        self.sums = self.workspace((ROWS, WIDTH), np.float32)
        self.counter = self.counters(1 if counted else 0)
        self.hidden = self.upload(np.zeros((ROWS, WIDTH), np.float32))

    def enqueue(self, operands: Any, out: Any) -> None:
        self.runs += 1
        if self.beside is not None:
            self.beside(self, *operands)
        if self.counter.size:
            self._launch("arrive", operands[0], self.sums, self.counter)
            self._launch("leave", self.sums, out, self.counter)
        else:
            self._launch(self.kernel, operands[0], out)

    def _launch(self, kernel: str, *arrays: Any) -> None:
        args = (self.count, *arrays, self.hidden)
        note(SimpleNamespace(ptr=DRIVER.kernel(kernel)), (1, 1, 1), 32, args, 0, False)
        data = [self.count] + [np.frombuffer(_bytes(one), one.dtype) for one in arrays]
        if kernel == "leave":
            data[2][:] = data[1] if data[3][0] == 1 else -1
            data[3][0] = 0
        else:
            data[2][: self.count] = 3 * data[1][: self.count]
        if kernel == "arrive":
            data[3][0] += 1


class PlainPlan(TriplePlan):
    """One launch without a workspace."""

    def workspace(self, shape: Any, dtype: Any) -> Any:
        return None


def _bytes(array: Any) -> Any:
    import ctypes

    return (ctypes.c_uint8 * array.nbytes).from_address(array.data.ptr)


class Streams:
    """CuPy's current stream, as tests set it."""

    ptr = 0

    def current(self, arrays: Any) -> Any:
        return self

    def capturing(self, stream: Any) -> bool:
        return bool(captured.get(self.ptr))


STREAM, captured = Streams(), {}


def capture(stream: int, graph: int) -> None:
    captured[stream] = graph
    DRIVER.capture(stream, graph)


def drawn() -> tuple[Any, Any]:
    """Give an operand and its product."""
    b = DRAWN.standard_normal((COLS, WIDTH)).astype(np.float32)
    return on_host(b), 3 * b


def empty() -> Any:
    return on_host(np.full((ROWS, WIDTH), np.nan, np.float32))


def operator(plan: DevicePlan) -> Any:
    """Give a compiled operator with a plan."""
    asked = Asked(Op.SPMM, SPEC, ("direct",), other_width="raise")
    matrix = OwnedMatrix.of(sparse.eye_array(ROWS, dtype="float32", format="csr"))
    made = compiled.CompiledOperator(matrix, asked, {WIDTH: Chosen(Choice("direct"), plan)})
    plan.runs = 0
    DRIVER.noted()
    return made


def calls() -> None:
    """The first call goes through Python's checks, others do not; a call that does not fit has Python's messages."""
    for plan in (PlainPlan(), TriplePlan(counted=True)):
        op, (b, expected), out = operator(plan), drawn(), empty()
        for _ in range(3):
            assert op(b, out=out) is out
            assert np.array_equal(from_host(out), expected)
        direct = op._launches.call
        other, expected = drawn()
        assert direct((other,), out) is out
        assert np.array_equal(from_host(out), expected)
        made = direct((other,), None)
        assert np.array_equal(from_host(made), expected)
        assert plan.runs == 0
        wide = on_host(np.zeros((COLS, 2 * WIDTH), np.float32))
        tall, double = wide.reshape(2 * COLS, WIDTH), on_host(np.zeros((COLS, WIDTH)))
        odd = wide.reshape(-1)[1 : 1 + COLS * WIDTH].reshape(COLS, WIDTH)
        for refused in (wide, wide[:, ::2], tall, double, odd, b.T, np.zeros((COLS, WIDTH), np.float32), None):
            assert direct((refused,), out) is NotImplemented
            assert direct((b,), refused) is NotImplemented or refused is None
        assert direct((b, b), out) is NotImplemented
        assert direct((), out) is NotImplemented
        for inside in (b, tall[1 : 1 + ROWS]):
            try:
                op(tall[:COLS] if inside is not b else b, out=inside)
            except OperandError as error:
                assert "expected memory of its own" in str(error)
            else:
                raise AssertionError
        op._launches.keep({WIDTH: SimpleNamespace(plan=None)})
        assert direct((b,), out) is NotImplemented


def turns() -> None:
    """Runs with a workspace wait for those on other streams; other runs do not until values change."""
    op, (b, _), out = operator(TriplePlan(counted=True)), drawn(), empty()
    for STREAM.ptr in (7, 7, 9, 0, 0, 7):
        op(b, out=out)
    ran = [f"run{stream} run{stream} mark{stream}" for stream in (7, 7, 9)]
    legacy = "wait0 run0 run0 run0 run0 mark0"
    told = f"{ran[0]} {ran[1]} wait9 {ran[2]} {legacy} wait7 {ran[0]}"
    assert DRIVER.noted() == told.split()
    op._turns.take(lambda: None, [b])
    STREAM.ptr = 5
    op._turns.take(lambda: None, [b])
    assert DRIVER.noted() == ["mark7", "wait5", "mark5"]
    op = operator(PlainPlan())
    for STREAM.ptr in (7, 9):
        op(b, out=out)
    assert DRIVER.noted() == ["run7", "run9"]
    op._turns.order()
    for STREAM.ptr in (7, 9):
        op(b, out=out)
    assert DRIVER.noted() == "run7 mark7 wait9 run9 mark9".split()
    STREAM.ptr = 0


def graphs() -> None:
    """Each graph has buffers of its own, by stream; they are used again when it is gone, and go with the plan."""
    plan = TriplePlan(counted=True)
    op, (b, expected), out, before = operator(plan), drawn(), empty(), DRIVER.held[0]
    op(b, out=out)
    own = from_host(plan.sums)
    for graph in (1, 2):
        capture(7, graph)
        STREAM.ptr = 7
        other, expected = drawn()
        for _ in range(2):
            op(other, out=out)
            assert np.array_equal(from_host(out), expected)
        assert np.array_equal(from_host(plan.sums), own)
        assert DRIVER.held[0] == before + 2 * graph
    capture(8, 2)
    STREAM.ptr = 8
    op(b, out=out)
    assert DRIVER.held[0] == before + 6
    told = DRIVER.noted()
    assert not [one for one in told if one[:4] in {"mark", "wait"} and one[4:] in {"7", "8"}]
    try:
        op(b)
    except BuildError as error:
        assert "expected out while a stream captures" in str(error)
    else:
        raise AssertionError
    for stream in (7, 8):
        capture(stream, 0)
    DRIVER.end_graph(1)
    capture(7, 3)
    STREAM.ptr = 7
    op(b, out=out)
    assert DRIVER.held[0] == before + 6
    capture(7, 0)
    for graph in (2, 3):
        DRIVER.end_graph(graph)
    STREAM.ptr = 0
    del op, plan
    gc.collect()
    assert DRIVER.held[0] == before


def failures() -> None:
    """After a launch that failed, counters are cleared before the next run, and only then."""
    op, (b, expected), out = operator(TriplePlan(counted=True)), drawn(), empty()
    op(b, out=out)
    DRIVER.fail(2)
    try:
        op(b, out=out)
    except RuntimeError as error:
        assert "cuLaunchKernelEx: expected success, found CUDA error 1" in str(error)
    else:
        raise AssertionError
    DRIVER.noted()
    for _ in range(2):
        out = empty()
        op(b, out=out)
        assert np.array_equal(from_host(out), expected)
    assert DRIVER.noted() == "clear0 run0 run0 run0 run0".split()


def threads() -> None:
    """Threads that never called CUDA, on streams of their own: each result is right."""
    op, wrong = operator(TriplePlan(counted=True)), []

    def work() -> None:
        b, expected = drawn()
        out = empty()
        for _ in range(300):
            op(b, out=out)
            if not np.array_equal(from_host(out), expected):
                wrong.append(True)

    started = [threading.Thread(target=work) for _ in range(8)]
    for one in started:
        one.start()
    for one in started:
        one.join()
    assert not wrong


def refusals() -> None:
    """A plan is taken where its launches alone give what it gives."""
    shared = SimpleNamespace(shared=LAUNCHER.wait().turns(), stream=lambda arrays: STREAM)

    def is_taken(plan: DevicePlan) -> bool:
        return noted_plan(LAUNCHER.wait(), shared, plan) is not None

    def add(plan: Any, b: Any) -> None:
        np.frombuffer(_bytes(plan.hidden), np.float32)[0] += 1  # a plan that keeps something from run to run

    class Copies(PlainPlan):
        def enqueue(self, operands: Any, out: Any) -> None:
            copied = self.upload(from_host(operands[0]))
            self._launch("triple", copied, out)

    class Cleared(TriplePlan):
        def enqueue(self, operands: Any, out: Any) -> None:
            np.frombuffer(_bytes(self.sums), np.float32)[:] = from_host(operands[0]).reshape(-1)
            self._launch("triple", self.sums, out)

    class Adds(PlainPlan):
        def enqueue(self, operands: Any, out: Any) -> None:
            self._launch("triple", operands[0], out)
            np.frombuffer(_bytes(out), np.float32)[:] += 1

    class Leaves(TriplePlan):
        def enqueue(self, operands: Any, out: Any) -> None:
            self._launch("arrive", operands[0], out, self.counter)
            np.frombuffer(_bytes(self.counter), np.int32)[:] = 0

    assert is_taken(PlainPlan())
    assert is_taken(TriplePlan(counted=True))
    assert not is_taken(PlainPlan(beside=add))
    assert not is_taken(Copies()), "a copy of the operand"
    assert not is_taken(Cleared()), "a workspace that something else writes"
    assert not is_taken(Adds()), "a kernel of a library"
    assert not is_taken(Leaves(counted=True)), "counters that a memset clears"
    assert not is_taken(PlainPlan(count=6)), "a part of the result is not written"
    assert noted_plan(LAUNCHER.wait(), shared, SimpleNamespace()) is None


class OneLaunch(OneLaunchPlan):
    """A kernel that takes a count, with a workspace sums and a counter, too, before the operand and the result."""

    def __init__(self, kernel: str, buffers: bool) -> None:
        shapes = SimpleNamespace(operand_shapes=((COLS, WIDTH),), out_shape=(ROWS, WIDTH), dtype=np.dtype(np.float32))
        shapes.matrix = SimpleNamespace(nnz=COUNT)
        super().__init__(shapes, HostTarget(SPEC), {})
        function = SimpleNamespace(ptr=DRIVER.kernel(kernel))
        self._kernel, self._grid = SimpleNamespace(function=function, instance=SimpleNamespace(threads=32)), (1, 1, 1)
        own = (self.workspace((ROWS, WIDTH), np.float32), self.counters(1)) if buffers else ()
        self._args = (np.int32(COUNT), *own)


def taken() -> None:
    """The launch of a plan is taken up without a run; each captured graph has buffers of its own."""
    for kernel, buffers in (("triple", False), ("aside", True)):
        launches, plan = operator(PlainPlan())._launches, OneLaunch(kernel, buffers)
        launches.take(WIDTH, plan)
        assert DRIVER.noted() == []
        for stream in (0, 7):
            capture(7, stream)
            STREAM.ptr = stream
            (b, expected), out = drawn(), empty()
            assert launches.run(WIDTH, CupyArrays(), (b, out))
            assert np.array_equal(from_host(out), expected)
            assert stream or not buffers or np.array_equal(from_host(plan.launch[2][1]), expected)
        assert not buffers or not np.array_equal(from_host(plan.launch[2][1]), expected)
        capture(7, 0)
        DRIVER.end_graph(7)
        DRIVER.noted()
    STREAM.ptr = 0


class RelationalPlan(TriplePlan):
    """X, 3 times; W is an argument, too."""

    def __init__(self) -> None:
        super().__init__(counted=True)
        self.shapes = ((COLS, WIDTH), (1, WIDTH, WIDTH)), (ROWS, WIDTH)

    def enqueue(self, operands: Any, out: Any) -> None:
        self.runs += 1
        self._launch("arrive", operands[0], self.sums, self.counter, operands[1])
        self._launch("leave", self.sums, out, self.counter)


def relational() -> None:
    """Products with several relations are the extension's with gradients and without, each graph with buffers."""
    nothing = np.arange(0)
    a, plan = RelationalMatrix(RelationalCsr.of_edges((ROWS, COLS), 1, (nothing, nothing, nothing))), RelationalPlan()
    turns, extension = Turns(STREAM), LAUNCHER.wait()  # type: ignore[arg-type]
    turns.share(extension)
    launches = Launches(extension, turns)
    launches.add((WIDTH, WIDTH), plan)
    launches._held = {key: one._replace(device=-1) for key, one in launches._held.items()}  # as of the host's tensors
    x, w = torch.randn(COLS, WIDTH), torch.nn.Parameter(torch.randn(1, WIDTH, WIDTH))
    a._plans[WIDTH, WIDTH, DType.FLOAT32, x.device] = _Planned(plan, turns, launches)
    plan.runs, before = 0, DRIVER.held[0]
    for given in (x, x.requires_grad_(), torch.randn(WIDTH, COLS).T):
        assert torch.equal(a.rgms(given, w), 3 * given)
        with torch.no_grad():
            assert torch.equal(a.rgms(given, w), 3 * given)
    DRIVER.noted()
    for STREAM.ptr in (7, 9):
        a.rgms(x, w)
    assert DRIVER.noted() == "mark0 wait7 run7 run7 mark7 wait9 run9 run9 mark9".split()
    capture(7, 1)
    STREAM.ptr = 7
    own = from_host(plan.sums)
    other = torch.randn(COLS, WIDTH)
    assert torch.equal(a.rgms(other, w), 3 * other)
    assert np.array_equal(from_host(plan.sums), own)
    assert DRIVER.held[0] == before + 2
    capture(7, 0)
    DRIVER.end_graph(1)
    STREAM.ptr = 0
    assert plan.runs == 0
    DRIVER.noted()
    for refused in ((torch.randn(COLS + 1, WIDTH), w), (x, w.double())):
        try:
            torch.ops.spmark.convolve(None, *refused, a.handle)
        except OperandError as error:
            assert "expected an array on the GPU" in str(error)  # the plan's check
        else:
            raise AssertionError
    assert "run0" not in DRIVER.noted()


def lives() -> None:
    """Plans and events go with their operators, ten thousand of them as well as one."""
    before = DRIVER.held
    plan = TriplePlan(counted=True)
    op, (b, _), out = operator(plan), drawn(), empty()
    op(b, out=out)
    seen = weakref.ref(plan)
    del op, plan
    gc.collect()
    assert seen() is None
    assert DRIVER.held == before
    launch = (DRIVER.kernel("triple"), 1, 1, 1, 32, 0, 0, 3, COUNT, 0, 0, 2, 1, 0, 0, 2, 1, 0)
    flat, found = array("Q", launch).tobytes(), []
    for number in range(10_000):
        made = LAUNCHER.wait().plan(LAUNCHER.wait().turns(), 0, (b.nbytes, out.nbytes), flat, b"")
        known = LAUNCHER.wait().calls(cupy.ndarray, lambda: STREAM, cupy.empty)
        LAUNCHER.wait().fit(known, (b, out), made)
        assert LAUNCHER.wait().call(known, (b,), out) is out
        if number in {1_000, 9_999}:
            found.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
            DRIVER.noted()
    assert found[1] - found[0] < 1024, "KiB; each has several hundred bytes"
    assert DRIVER.held == before


if __name__ == "__main__":
    compiled._streams = lambda: STREAM  # type: ignore[assignment]
    cupy.cuda.get_current_stream = lambda: STREAM
    cupy.empty = lambda shape, dtype: on_host(np.empty(shape, dtype))
    DRIVER.library.cuCtxSetCurrent(1)
    for test in (calls, turns, graphs, failures, threads, refusals, taken, relational, lives):
        test()
