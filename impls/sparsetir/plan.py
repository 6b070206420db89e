"""SparseTIR: composable ELL buckets or plain CSR for SpMM, a two-stage SDDMM, tuned for matrix, width and device.

Ye, Lai, Shao, Chen and Ceze, "SparseTIR: Composable Abstractions for Sparse Compilation in Deep Learning", ASPLOS 2023,
sections 4.2.1 and 4.2.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from spmark.impls.core.choices import check_choices
from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Config, Plan, Search
from spmark.impls.core.problem import Op, Problem
from spmark.impls.kernels.direct_spmm import SPMM_DIRECT, is_direct
from spmark.impls.kernels.ell_buckets import SPMM_ELL_BUCKETS
from spmark.impls.kernels.hyb_convert import FILL_ELL_BUCKETS
from spmark.impls.kernels.sddmm import SDDMM_CSR
from spmark.impls.kernels.sddmm_runs import SDDMM_RUNS, sddmm_plan
from spmark.impls.kernels.shared_rows import ROUND_SHARED_ROWS
from spmark.impls.kernels.zeroing import ZERO_ROWS
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import MAX_GRID, ceil_div, open_target
from spmark.impls.runtime.template import KernelTemplate
from spmark.impls.sparsetir.form import Forms
from spmark.impls.sparsetir.paper import LANES, SpaceOwner, paper_space
from spmark.impls.sparsetir.search import MOST_K, hyb_spaces, rule_width, sddmm_spaces, search_hyb, search_sddmm, tiles
from spmark.impls.tuning.cache import PlanCache, searched
from spmark.impls.tuning.space import Space
from spmark.impls.tuning.strategies import exhaustive


@dataclass(frozen=True)
class SparseTir:
    """SpMM over hyb(c, k), or over CSR where nothing is pinned and CSR is faster, and SDDMM in two stages."""

    name: ClassVar[str] = "sparsetir"
    ops: ClassVar[frozenset[Op]] = frozenset(Op)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA, DeviceKind.HOST_SIMT})
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (
        *(SPMM_ELL_BUCKETS, SPMM_DIRECT, ROUND_SHARED_ROWS, ZERO_ROWS, FILL_ELL_BUCKETS, SDDMM_CSR, SDDMM_RUNS),
    )
    cost_models: ClassVar[Mapping[str, str]] = {
        "rule": "spmark.impls.sparsetir.cost_models:WidthRule",
        "dash": "spmark.impls.dash.cost_models:TransferredScores",
    }

    c: int = 0
    """Column partitions (SpMM); 0 searches."""
    k: int = -1
    """SpMM: binary logarithm of the widest bucket; -1 searches, -2 takes the paper's rule ceil(log2(nnz / I))."""
    thirds: bool | None = None
    """SpMM: whether bucket widths of 24, 48, 96, ... stand between the powers of two; None searches where they save."""
    tuned: bool = True
    """Measure schedules (and c and k where they are open) on the device; otherwise take the middle of the space."""
    mode: str = SpaceOwner.OWN
    """Whose search: our ``own``, or that of the ``paper``, which measures every c and takes its rule for k."""

    def __post_init__(self) -> None:
        check_choices(self, mode=SpaceOwner)
        if self.thirds and self.mode == SpaceOwner.PAPER:
            raise ValueError("expected thirds to be false or open in mode paper, whose widths are powers of two")
        if self.c < 0:
            raise ValueError(f"expected c of at least 1, or 0 to search it, found {self.c}")
        if not -2 <= self.k <= MOST_K:
            raise ValueError(f"expected k of 0 to {MOST_K}, -1 to search it or -2 for the paper's rule, found {self.k}")

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse widths beyond the grid."""
        papers = self.mode == SpaceOwner.PAPER
        narrowest = LANES if papers else min(vector * lanes for vector, lanes in tiles(problem))
        if ceil_div(problem.width, narrowest) > MAX_GRID[1]:
            return f"expected J of at most {MAX_GRID[1] * narrowest}, found {problem.width}"
        return None

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Search where non-zeros and a device to measure on exist, then convert and upload."""
        pinned = self._pinned(problem)
        if not self.tuned or device.kind is not DeviceKind.CUDA or problem.matrix.nnz == 0:
            return build_plan(problem, device, self._untuned(problem, pinned))
        mode = {} if self.mode == SpaceOwner.OWN else {"mode": str(self.mode)}
        cache = PlanCache("sparsetir", problem, device, pinned | mode)
        kept = searched(cache, lambda: self._search(problem, device, pinned), self._may_give(problem, pinned))
        plan = build_plan(problem, device, kept.config)
        plan.phases_s |= kept.phases_s
        plan.search = kept.search
        return plan

    def _pinned(self, problem: Problem) -> dict[str, Any]:
        if problem.op is Op.SDDMM:
            return {}
        pinned: dict[str, Any] = {"c": self.c} if self.c else {}
        if self.k == -2:
            pinned["max_width"] = rule_width(problem)
        elif self.k >= 0:
            pinned["max_width"] = 1 << self.k
        if self.thirds is not None:
            pinned["thirds"] = self.thirds
        return pinned

    def _untuned(self, problem: Problem, pinned: Mapping[str, Any]) -> Config:
        """Give a config from the middle of our space, or the first one of the paper's."""
        if self.mode == SpaceOwner.PAPER:
            return next(paper_space(problem, pinned).configs())
        return {**_middle(problem), **pinned}

    def _may_give(self, problem: Problem, pinned: Mapping[str, Any]) -> Callable[[Config], bool]:
        if self.mode == SpaceOwner.PAPER:
            spaces: tuple[Space, ...] = (paper_space(problem, pinned),)
        else:
            spaces = hyb_spaces(problem, pinned) if problem.op is Op.SPMM else sddmm_spaces(problem)
        return lambda config: any(config in space for space in spaces)

    def _search(self, problem: Problem, device: DeviceSpec, pinned: dict[str, Any]) -> tuple[Config, Search]:
        from spmark.impls.sparsetir.gpu import open_race

        race = open_race(problem, device)
        if self.mode == SpaceOwner.PAPER:
            exhaustive(race, paper_space(problem, pinned).configs())
        elif problem.op is Op.SPMM:
            search_hyb(problem, pinned, race)
        else:
            search_sddmm(problem, race)
        config, _ = race.finish()
        return config, race.describe()


def _middle(problem: Problem) -> dict[str, Any]:
    """Give a config from the middle of the space."""
    if problem.op is Op.SDDMM:
        vector, lanes = tiles(problem, (8, 16, 32))[-1]
        return {"vector": vector, "lanes": lanes, "batch": 4, "searched": False}
    vector, lanes = tiles(problem)[-1]
    return {"c": 1, "max_width": 32, "vector": vector, "lanes": lanes, "work": 32}


def build_plan(problem: Problem, device: DeviceSpec, config: dict[str, Any]) -> DevicePlan:
    """Build one config; for SpMM ``c, max_width`` or ``format`` name the format, and the rest is the schedule."""
    target = open_target(device)
    if problem.op is Op.SDDMM:
        return sddmm_plan(problem, target, {}, config)
    forms = Forms(problem, target)
    plan = forms.plan(config)
    if not is_direct(config):
        plan.charge(forms.converter.phases_s)
    return plan
