"""Ring three: what only a GPU can show of every CUDA implementation: capture, streams, other libraries' arrays."""

from __future__ import annotations

import threading
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import UnsupportedError
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.operators import random_operands, reference
from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.core.tolerance import tolerance
from spmark.impls.runtime.device import calibrate, find
from spmark.impls.table import IMPLEMENTATIONS, create

pytestmark = pytest.mark.gpu
SEED = 11


def on_cuda(name: str) -> bool:
    module, _, label = IMPLEMENTATIONS[name].partition(":")
    return DeviceKind.CUDA in getattr(import_module(module), label).devices


@pytest.fixture(scope="module")
def device() -> DeviceSpec:
    return find("cuda")


@pytest.fixture(params=[n for n in IMPLEMENTATIONS if on_cuda(n)])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=list(Op), ids=str)
def problem(request: pytest.FixtureRequest, small_matrix: Csr) -> Problem:
    return Problem(request.param, small_matrix, 32)


class Built:
    """A plan with operands and a poisoned result on the GPU."""

    def __init__(self, name: str, problem: Problem, device: DeviceSpec) -> None:
        import cupy

        implementation = create(name)
        if problem.op not in implementation.ops:
            pytest.skip(f"{name} has no {problem.op}")
        reason = implementation.unsupported(problem, device)
        if reason is not None:
            pytest.skip(reason)
        try:
            self.plan: Plan = implementation.build(problem, device)
        except UnsupportedError as error:
            pytest.skip(str(error))
        self.problem = problem
        self.sources = random_operands(problem, SEED)
        self.operands = [cupy.empty(s.shape, problem.dtype.numpy) for s in self.sources]
        from spmark.impls.runtime.cudalab import draw

        for source, operand in zip(self.sources, self.operands, strict=True):
            draw(source, operand, device.arch)
        self.out = cupy.full(problem.out_shape, problem.dtype.nan, problem.dtype.numpy)
        cupy.cuda.Device().synchronize()

    def error(self, out: Any) -> float:
        expected = reference(self.problem, self.sources)
        return expected.max_error(expected.select(self.problem, out))

    def allowed(self) -> float:
        return tolerance(self.problem, self.plan.half_sums)


def test_a_run_is_enqueued_on_the_current_stream(name: str, problem: Problem, device: DeviceSpec) -> None:
    import cupy

    built = Built(name, problem, device)
    gate, opened = cupy.cuda.Stream(non_blocking=True), threading.Event()
    with gate:
        built.plan.run(
            built.operands, built.out
        )  # a library's first call may load code for longer than the GPU is busy
        built.out.fill(np.nan)
        gate.synchronize()
        gate.launch_host_func(opened.wait, 20)  # seconds; a run that waits for the stream sees them pass
        built.plan.run(built.operands, built.out)
        finished = cupy.cuda.Event()
        finished.record(gate)
    waited = finished.done
    opened.set()
    assert not waited, "a run on this stream waits for what was enqueued before it"
    gate.synchronize()
    assert built.error(built.out.get()) <= built.allowed()


def test_torch_tensors_go_straight_in(name: str, problem: Problem, device: DeviceSpec) -> None:
    torch = pytest.importorskip("torch")
    built = Built(name, problem, device)
    operands = [torch.from_dlpack(operand) for operand in built.operands]
    out = torch.full(problem.out_shape, float("nan"), device="cuda", dtype=torch.float32)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        built.plan.run(operands, out)
    stream.synchronize()
    assert built.error(out.cpu().numpy()) <= built.allowed()


@pytest.mark.parametrize("dtype", list(DType))
def test_operands_are_the_same_bits_on_host_and_gpu(dtype: DType, small_matrix: Csr, device: DeviceSpec) -> None:
    import cupy

    from spmark.impls.runtime.cudalab import draw, taken

    for source in random_operands(Problem(Op.SDDMM, small_matrix, 1000, dtype), SEED):
        here, there = np.empty(source.shape, dtype.numpy), cupy.empty(source.shape, dtype.numpy)
        source.fill(here)
        draw(source, there, device.arch)
        assert there.get().tobytes() == here.tobytes()
        rows, places = np.array([5, 0, 5, source.shape[0] - 1]), np.array([here.size - 1, 3])
        assert taken(there, rows, dtype, device.arch).tobytes() == here[rows].tobytes()
        assert taken(there.reshape(-1), places, dtype, device.arch).tobytes() == here.reshape(-1)[places].tobytes()
        assert source.equals(there, cupy)
        there[3, 3] = 0
        assert not source.equals(there, cupy)


def test_a_calibration_is_plausible(device: DeviceSpec) -> None:
    measured = calibrate(device)
    assert 1e11 < measured.copy_bytes_per_s < 1e14
    assert measured.read_bytes_per_s > 0.4 * measured.copy_bytes_per_s
    # Two flops a multiply-add on 128 lanes: no clock that is reported can be beaten, and half of it is easily met.
    peak = 2 * 128 * measured.num_sms * measured.clock_mhz * 1e6
    assert 0.5 * peak < measured.fma_flops_per_s < 1.05 * peak
    assert measured.tensor_flops_per_s["float16"] > measured.fma_flops_per_s
    assert 1e-7 < measured.launch_s < 1e-4
    assert 1e-7 < measured.cold_launch_s < 1e-4
    assert 1e-7 < measured.cold_load_s < 1e-5
    for row_bytes, rate in measured.l2_gather_bytes_per_s.items():
        assert 0.1 * measured.read_bytes_per_s < rate < measured.l1_gather_bytes_per_s[row_bytes]
    small, large = (end(measured.table_gather_bytes_per_s) for end in (min, max))
    assert measured.table_gather_bytes_per_s[large] < measured.table_gather_bytes_per_s[small]
