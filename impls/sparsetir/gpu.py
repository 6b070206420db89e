"""Measuring candidates of the search on a GPU."""

from __future__ import annotations

from typing import Any

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.problem import Op, Problem
from spmark.impls.kernels.sddmm import SddmmPlan
from spmark.impls.kernels.trial import Trial
from spmark.impls.runtime.target import open_target
from spmark.impls.sparsetir.form import Forms


class Laboratory:
    """One problem on a GPU.

    Parameters
    ----------
    problem : Problem
    device : DeviceSpec
        Of the GPU that is there.
    """

    def __init__(self, problem: Problem, device: DeviceSpec) -> None:
        self._problem, self._target, self._trial = problem, open_target(device), Trial(problem, device)
        self._forms = Forms(problem, self._target) if problem.op is Op.SPMM else None

    def measure(self, config: dict[str, Any]) -> list[float]:
        """Give samples of a config in microseconds, from cold caches.

        Raises
        ------
        BuildError
            It cannot be built, or its result is wrong.
        """
        if self._forms is not None:
            return self._trial.samples_us(self._forms.plan(config))
        return self._trial.samples_us(SddmmPlan(self._problem, self._target, {}, **config))
