"""SparseTIR: composable ELL buckets or plain CSR for SpMM, a two-stage SDDMM, tuned for matrix, width and device.

Ye, Lai, Shao, Chen and Ceze, "SparseTIR: Composable Abstractions for Sparse Compilation in Deep Learning", ASPLOS 2023,
sections 4.2.1 and 4.2.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import BuildError, UnsupportedError, check_choices
from spmark.impls.core.interfaces import Config, Plan
from spmark.impls.core.problem import Csr, Op, Problem
from spmark.impls.core.stores import Forecast
from spmark.impls.formats.hyb import HybLayout, cell_layout
from spmark.impls.kernels.direct_space import is_direct
from spmark.impls.kernels.ell_buckets import SPMM_ELL_BUCKETS, ell_tiles
from spmark.impls.kernels.family import KernelFamily
from spmark.impls.kernels.hyb_spmm import FILL_ELL_BUCKETS, HYB_SPMM, MOST_K, rule_width
from spmark.impls.kernels.sddmm import CSR_SDDMM, RUNS_SDDMM, SDDMM_CSR, SDDMM_RUNS
from spmark.impls.kernels.shared_rows import ROUND_SHARED_ROWS, ZERO_ROWS
from spmark.impls.runtime.target import too_wide
from spmark.impls.runtime.template import Instance, KernelTemplate
from spmark.impls.sparsetir.search import (
    LANES,
    PAPERS_HYB,
    PAPERS_SDDMM,
    SpaceOwner,
    kernels_ahead,
    search_hyb,
    search_sddmm,
)
from spmark.impls.tuning.strategies import exhaustive
from spmark.impls.tuning.tune import Strategy, space_of, tune


@dataclass(frozen=True)
class SparseTir:
    """SpMM over hyb(c, k), and SDDMM in two stages: with our schedules, or as published (``mode: paper``)."""

    name: ClassVar[str] = "sparsetir"
    ops: ClassVar[frozenset[Op]] = frozenset(Op)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA, DeviceKind.HOST_SIMT})
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (
        *(SPMM_ELL_BUCKETS, ROUND_SHARED_ROWS, ZERO_ROWS, FILL_ELL_BUCKETS),
        *(SDDMM_CSR, SDDMM_RUNS),
    )
    cost_models: ClassVar[Mapping[str, str]] = {"dash": "spmark.impls.dash.cost_models:TransferredScores"}

    retired: ClassVar[Mapping[str, Any]] = {"thirds": None}

    c: int = 0
    """Column partitions (SpMM); 0 searches."""
    k: int = -1
    """SpMM: binary logarithm of the widest bucket; -1 searches."""
    tuned: bool = True
    """Measure schedules (and c and k where they are open) on the device; otherwise take the middle of the space."""
    mode: str = SpaceOwner.OWN
    """Whose search: our ``own``, or that of the ``paper``, which measures every c and takes its rule for k."""

    def __post_init__(self) -> None:
        check_choices(self, mode=SpaceOwner)
        if self.c < 0:
            raise ValueError(f"expected c of at least 1, or 0 to search it, found {self.c}")
        if not -1 <= self.k <= MOST_K:
            raise ValueError(f"expected k of 0 to {MOST_K}, or -1 to search it, found {self.k}")

    def stored_as(self, problem: Problem, device: DeviceSpec, config: Config) -> Csr | HybLayout:
        """Lay out the buckets of a config, without elements; the order of rows changes no store."""
        matrix = problem.matrix
        if problem.op is Op.SDDMM or is_direct(config):
            return matrix
        partitions, widest = config["c"], config["max_width"]
        if not 1 <= partitions <= matrix.num_cols:
            raise BuildError(f"{self.name}: expected c of 1 to {matrix.num_cols:,} columns, found {partitions}")
        tail_in_last, thirds = config.get("tail_in_last", False), config.get("thirds", False)
        return cell_layout(matrix, [widest] * partitions, tail_in_last, thirds=thirds)

    def forecast(self, problem: Problem, device: DeviceSpec) -> Forecast:
        """Take the paper's rule for k, and one column partition where c is not pinned: c has no rule.

        Raises
        ------
        UnsupportedError
            The operator is SDDMM, for which the paper has no rule.
        """
        if problem.op is not Op.SPMM:
            raise UnsupportedError(f"expected spmm, for which the paper has a rule, found {problem.op}: measure it")
        config = {"c": self.c or 1, "max_width": rule_width(problem)}
        return Forecast(config, "the paper's rule k = ceil(log2(nnz / I))")

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse widths beyond the grid."""
        tiles = ell_tiles(problem.width, problem.dtype)
        narrowest = min(tile["vector"] * tile["lanes"] for tile in tiles)
        return too_wide(problem.width, LANES if self.mode == SpaceOwner.PAPER else narrowest)

    def ahead(self, problem: Problem) -> Iterable[Instance]:
        """Name the kernels of our own search."""
        return kernels_ahead(problem) if self.tuned and self.mode == SpaceOwner.OWN else ()

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Search where non-zeros and a device to measure on exist; otherwise take the default of the space."""
        families, strategy = self._search(problem)
        told = {"mode": str(self.mode)} if self.mode == SpaceOwner.PAPER else {}
        how: dict[str, Any] = {"pinned": self._pinned(problem), "facts": told, "measured": self.tuned}
        return tune(problem, device, families, strategy, owner=self.name, **how)

    def _pinned(self, problem: Problem) -> dict[str, Any]:
        if problem.op is Op.SDDMM:
            return {}
        asked = {"c": self.c, "max_width": 1 << self.k if self.k >= 0 else 0}
        return {name: value for name, value in asked.items() if value}

    def _search(self, problem: Problem) -> tuple[tuple[KernelFamily, ...], Strategy]:
        """Give what is searched, and how."""
        spmm, pinned = problem.op is Op.SPMM, self._pinned(problem)
        if self.mode == SpaceOwner.PAPER:
            papers = PAPERS_HYB if spmm else PAPERS_SDDMM
            return (papers,), lambda race: exhaustive(race, space_of(papers, problem, pinned).configs())
        if spmm:
            return (HYB_SPMM,), lambda race: search_hyb(problem, pinned, race)
        return (RUNS_SDDMM, CSR_SDDMM), lambda race: search_sddmm(problem, race)
