"""A bench whose cases do harm on a real GPU: imported by children only."""

from __future__ import annotations

import cupy
import suite_fakes

from spmark.impls.runtime.lab import canary, open_lab
from spmark.suite.run.rows import Result, Timed, make_row

KERNELS = r"""
extern "C" __global__ void segfault() { *reinterpret_cast<volatile int*>(16) = 1; }
extern "C" __global__ void hang(volatile int* flag) { while (*flag == 0) { } }
"""


class WildBench:
    """Launches the kernel that the case names."""

    def __init__(self, setup, on_phase):
        self._setup, self._on_phase, self._lab = setup, on_phase, open_lab(setup.device)

    def canary(self):
        canary(self._lab)

    def measure(self, case):
        self._on_phase("checking")
        do = case.config.get("do")
        if do is not None:
            kernel = cupy.RawModule(code=KERNELS).get_function(do)
            kernel((1,), (1,), (cupy.zeros(1, cupy.int32),) if do == "hang" else ())
            cupy.cuda.get_current_stream().synchronize()
        return Result(make_row(case, self._setup.device, self._setup.environment, Timed([1.0])))


def open_bench(setup, on_phase):
    suite_fakes.register()
    return WildBench(setup, on_phase)
