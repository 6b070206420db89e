"""The gate before timed runs: whom it holds, for how long, and that no sample holds time of the host."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter, sleep

import numpy as np
import pytest
from compilers import needs_compilers

from spmark.impls.core.errors import CompileError
from spmark.impls.runtime.compile import compile_many
from spmark.impls.runtime.device import find
from spmark.impls.runtime.host.ring import compile_host, launch_host

SOURCE = Path(__file__).parents[2] / "impls" / "runtime" / "kernels" / "timing.cu"
LIMIT_NS = 300_000_000


@needs_compilers
def test_the_gate_compiles_for_every_target() -> None:
    for binary in compile_many([(SOURCE, "gate<32>", arch) for arch in ("sm_80", "sm_90", "sm_100")], 1):
        assert not isinstance(binary, CompileError), binary
        assert binary.spill_bytes == 0


@pytest.fixture(scope="module")
def executable() -> Path:
    return compile_host(SOURCE, ["gate<32>"])


@pytest.mark.parametrize(("opened", "held"), [(7, False), (6, True)])
def test_it_waits_for_its_turn_or_its_limit(executable: Path, opened: int, held: bool) -> None:
    def seconds(word: int) -> float:
        begun = perf_counter()
        args = [np.int32(7), np.int64(LIMIT_NS), np.array([word], np.int32)]
        launch_host(executable, "gate<32>", (1, 1, 1), (32, 1, 1), 0, args)
        return perf_counter() - begun

    seconds(7)  # starting a process takes longer the first time
    assert (seconds(opened) > LIMIT_NS * 1e-9) == held


@pytest.mark.gpu
def test_no_sample_holds_time_of_the_host() -> None:
    cupy = pytest.importorskip("cupy")
    from spmark.impls.runtime.cudalab import CudaStopwatch

    values = cupy.random.default_rng(1).standard_normal(1 << 16, cupy.float32)

    def run() -> None:
        cupy.add(values, values, out=values)
        sleep(2e-3)  # a host that is busy with something else
        cupy.add(values, values, out=values)

    stopwatch = CudaStopwatch(find("cuda"))
    stopwatch.batch([run], 1, cold=True)  # the first launch of a kernel loads it, for which it waits
    times = stopwatch.batch([run], 8, cold=True)[0]
    assert times.max() < 100, times


@pytest.mark.gpu
def test_a_run_that_waits_for_the_gpu_is_timed_too() -> None:
    cupy = pytest.importorskip("cupy")
    from spmark.impls.runtime.cudalab import CudaStopwatch

    values = cupy.random.default_rng(1).standard_normal(1 << 16, cupy.float32)

    def run() -> None:
        cupy.add(values, values, out=values)
        cupy.cuda.get_current_stream().synchronize()

    begun = perf_counter()
    times = CudaStopwatch(find("cuda")).batch([run], 8, cold=True)[0]
    assert (times > 0).all()
    assert perf_counter() - begun < 5
