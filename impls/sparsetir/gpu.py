"""The race of SparseTIR's candidates on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Op, Problem
from spmark.impls.kernels.direct_spmm import direct_instance, is_direct
from spmark.impls.kernels.ell_buckets import ell_instance
from spmark.impls.kernels.sddmm_runs import sddmm_kernel, sddmm_plan
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import open_target
from spmark.impls.runtime.template import Instance
from spmark.impls.sparsetir.form import Forms
from spmark.impls.tuning.gpu import PlanTimer
from spmark.impls.tuning.race import Race


def open_race(problem: Problem, device: DeviceSpec, seed: int = 0, **options: Any) -> Race[DevicePlan]:
    """Open a race of configs of hyb and of the direct kernel, or of SDDMM's schedules.

    Parameters
    ----------
    problem : Problem
    device : DeviceSpec
        Spec of the present GPU.
    seed : int
        Seed of the operands.
    **options
        Of `Race`.
    """
    target = open_target(device)
    spmm = problem.op is Op.SPMM
    forms = Forms(problem, target) if spmm else None

    def build(config: Config) -> DevicePlan:
        return forms.plan(config) if forms else sddmm_plan(problem, target, {}, config)

    def instance(config: Config) -> Instance:
        if not spmm:
            return sddmm_kernel(problem, config)
        return direct_instance(problem, config) if is_direct(config) else ell_instance(problem, config)

    def prepare(configs: Sequence[Config]) -> None:
        target.load(list(dict.fromkeys(map(instance, configs))))

    return Race(build, PlanTimer(problem, device, seed), prepare=prepare, **options)
