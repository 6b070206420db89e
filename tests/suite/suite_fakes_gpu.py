"""A bench whose cases do harm on a real GPU: imported by children only."""

from __future__ import annotations

import cupy
import suite_fakes

from spmark.impls.runtime.lab import canary, open_lab
from spmark.records.schema import Outcome, Status
from spmark.suite.run.messages import Result

KERNELS = r"""
extern "C" __global__ void segfault() { *reinterpret_cast<volatile int*>(16) = 1; }
extern "C" __global__ void hang(volatile int* flag) { while (*flag == 0) { } }
"""


class WildBench:
    """Launches the kernel that the case names."""

    def __init__(self, device, cache, options, on_phase):
        suite_fakes.register()
        self._on_phase, self._lab = on_phase, open_lab(device)

    def canary(self):
        canary(self._lab)

    def measure(self, case):
        self._on_phase("checking")
        do = case.config.get("do")
        if do is not None:
            kernel = cupy.RawModule(code=KERNELS).get_function(do)
            kernel((1,), (1,), (cupy.zeros(1, cupy.int32),) if do == "hang" else ())
            cupy.cuda.get_current_stream().synchronize()
        return Result(Outcome(status=Status.OK, samples_us=[1.0]))
