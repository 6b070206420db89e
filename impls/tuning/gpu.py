"""The clock of a race on a GPU."""

from __future__ import annotations

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.problem import Problem
from spmark.impls.runtime.cuda import cuda_faults
from spmark.impls.runtime.cudatiming import CudaStopwatch
from spmark.impls.runtime.withcupy import cupy
from spmark.impls.tuning.timer import ProblemTimer


class PlanTimer(ProblemTimer):
    """A problem on a GPU.

    Parameters
    ----------
    problem : Problem
    device : DeviceSpec
        The GPU of this machine.
    seed : int
        As in `ProblemTimer`.
    """

    def __init__(self, problem: Problem, device: DeviceSpec, seed: int = 0) -> None:
        super().__init__(problem, CudaStopwatch(device), cupy, cupy.asnumpy, seed)

    def check(self, plan: Plan) -> None:
        """Refuse a plan whose result is wrong.

        Raises
        ------
        BuildError
            The result is wrong; says by how much.
        KernelFault
            The plan broke the device.
        """
        with cuda_faults():
            super().check(plan)
