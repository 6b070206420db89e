"""STile: hybrid sparse formats found by a greedy search over a calibrated cost model, for SpMM and SDDMM.

Fang, Shen, Wang and Chen, "STile: Searching Hybrid Sparse Formats for Sparse Deep Learning Operators Automatically",
SIGMOD 2024.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import BuildError, check_choices
from spmark.impls.core.interfaces import Built, Config, Plan
from spmark.impls.core.problem import Op, Problem
from spmark.impls.core.stores import Forecast
from spmark.impls.formats.tiles import TileFormat
from spmark.impls.kernels.ell_buckets import SPMM_ELL_BUCKETS
from spmark.impls.kernels.sddmm import SDDMM_CSR, SDDMM_RUNS
from spmark.impls.kernels.shared_rows import ROUND_SHARED_ROWS, ZERO_ROWS
from spmark.impls.kernels.tile_sddmm import SDDMM_TILES
from spmark.impls.kernels.tile_spmm import SPMM_TILES
from spmark.impls.runtime.target import open_target, too_wide
from spmark.impls.runtime.template import KernelTemplate
from spmark.impls.stile.calibration import Calibration, calibration_for
from spmark.impls.stile.cost_models import form_of
from spmark.impls.stile.prices import Pricing
from spmark.impls.stile.space import Formats, ResultOrder, Rules, SearchMode
from spmark.impls.stile.tune import build_first, fastest

if TYPE_CHECKING:  # brings the compiled loops along
    from spmark.impls.stile.search import Tiling

_MATRIX_UNIT_COLUMNS = 8
"""Block tiles of SpMM need J to be a multiple of this."""
_WIDER = (128, 512)
"""Widths of ELL rows that are compared with the public code's where plans are measured: more of a row in one piece."""
_MOST_AGAIN = 1 << 25
"""Most non-zeros for which blocks are searched twice: beyond, it takes a minute."""


@dataclass(frozen=True)
class Stile(Rules):
    """SpMM over block and ELL tiles, SDDMM over block and one-dimensional tiles."""

    name: ClassVar[str] = "stile"
    ops: ClassVar[frozenset[Op]] = frozenset(Op)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA, DeviceKind.HOST_SIMT})
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (
        *(SPMM_TILES, SPMM_ELL_BUCKETS, ROUND_SHARED_ROWS, ZERO_ROWS),
        *(SDDMM_TILES, SDDMM_CSR, SDDMM_RUNS),
    )
    retired: ClassVar[Mapping[str, Any]] = {"thirds": False, "budget_s": 0.0, "widest": 0}
    loops: ClassVar[tuple[str, ...]] = ("spmark.impls.stile.loops", "spmark.impls.formats.loops")
    cost_models: ClassVar[Mapping[str, str]] = {"prices": "spmark.impls.stile.cost_models:TilePrices"}

    searched_width: int = 0
    """J that the format is searched for; 0 is the problem's own. The paper searches once for all J."""
    tuned: bool = True
    """Measure the searched plans and their schedules on the device; otherwise take the plan predicted fastest. Measured
    plans also have wider ELL rows, which are not in the paper, nor in its mode."""
    calibration: str = ""
    """A calibrated GPU by name, or a file of ``spmark study calibrate stile``. Empty for the device's own calibration,
    or the published A100's where the device has none."""

    order: str = ResultOrder.CSR
    """Order of SDDMM's result: ``csr``, or ``tiles``, where there are blocks; `Plan.order` then gives the order."""
    cost_model: str = Pricing.LINE
    """The paper's ``line``, or ``mlp``, the network that the paper tried, where the calibration has one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choices(self, cost_model=Pricing, order=ResultOrder)
        if self.searched_width < 0:
            raise ValueError(f"expected searched_width of at least 0, found {self.searched_width}")

    def stored_as(self, problem: Problem, device: DeviceSpec, config: Config) -> TileFormat:
        """Search the tiles of a config again and lay them out: the search is deterministic.

        Raises
        ------
        BuildError
            The search finds other tiles today.
        """
        calibration, _ = self.priced_by(problem, device)
        # What was measured also had wider rows among its forms, and in earlier versions rows in another order, which
        # changes no store; what was not measured is the first.
        for measured in (False, True):
            for form in self.forms(problem, calibration, measured):
                if form_of(form.facts) == form_of(config):
                    return TileFormat.from_csr(problem.matrix, form.selection)
        raise BuildError(
            f"expected the search to find the recorded tiles {form_of(config)} again, found others: the search or its "
            "calibration has changed, so record the case anew"
        )

    def forecast(self, problem: Problem, device: DeviceSpec) -> Forecast:
        """Search, and take the tiles that are predicted fastest.

        Raises
        ------
        DeviceError
            There is no calibration for the operator and the dtype.
        """
        calibration, label = self.priced_by(problem, device)
        form = self.forms(problem, calibration, measured=False)[0]
        return Forecast(form.facts, f"STile's search, prices of {label}", form.predicted_ms * 1e-3)

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse widths beyond the grid, and block tiles that are asked for where they have no kernel."""
        if wide := too_wide(problem.width, 8):
            return wide
        if problem.op is Op.SPMM and self.order != ResultOrder.CSR:
            return f"expected order: csr of SpMM, whose result is dense, found {self.order}"
        if self._needs_blocks and not _has_blocks(problem):
            return (
                f"expected 16-bit floats for SDDMM, and J a multiple of {_MATRIX_UNIT_COLUMNS} for SpMM, for block "
                f"tiles, found {problem.dtype} and {problem.width}"
            )
        return None

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Search, convert and upload; where plans are measured, keep the fastest."""
        own = Built()
        with own.phase("compile"):
            # A process pays once to read Numba's loops from the cache.
            from spmark.impls.formats import loops  # noqa: F401
            from spmark.impls.stile import search  # noqa: F401
        calibration, label = self.priced_by(problem, device)
        measured = self.tuned and device.kind is DeviceKind.CUDA and problem.matrix.nnz > 0
        with own.phase("search"):
            forms = self.forms(problem, calibration, measured)
        target, facts = open_target(device), self._facts(problem, label)
        if measured:
            with own.phase("select"):
                plan = fastest(problem, target, forms, facts)
            # Building and timing all plans counts as selecting, except for the plan that is kept.
            own.phases_s["select"] = max(0.0, own.phases_s["select"] - sum(plan.phases_s.values()))
        else:
            plan = build_first(problem, target, forms[0], facts)
        plan.charge(own.phases_s)
        return plan

    @property
    def _needs_blocks(self) -> bool:
        """Whether block tiles are asked for, whatever the search would prefer."""
        return self.formats == Formats.BLOCKS or self.keep_mixture

    def priced_by(self, problem: Problem, device: DeviceSpec) -> tuple[Calibration, str]:
        """Give the calibration that prices tiles, and its label for a plan's config.

        Raises
        ------
        DeviceError
            There is no calibration for the operator and the dtype.
        """
        net = self.cost_model == Pricing.MLP
        return calibration_for(device.name, problem.op, problem.dtype, self.calibration, net)

    def forms(self, problem: Problem, calibration: Calibration, measured: bool) -> list[Tiling]:
        """Search tiles: every mixture of formats, and, where plans are measured, wider ELL rows.

        Parameters
        ----------
        problem : Problem
        calibration : Calibration
            The calibration of `priced_by`.
        measured : bool
            Whether forms are compared on the device.
        """
        from spmark.impls.stile.search import forms_of

        matrix, blocks = problem.matrix, _has_blocks(problem)
        other = replace(self, formats=Formats.OTHER, keep_mixture=False)
        asked = [(self if blocks else other, 0)]
        pinned = self._needs_blocks or self.mode == SearchMode.PAPER
        if measured and problem.op is Op.SPMM and not pinned:
            small = matrix.nnz <= _MOST_AGAIN
            asked += [(self if blocks and small else other, _WIDER[0]), (other, _WIDER[1])]
        width = self.searched_width or problem.width
        return forms_of(matrix, asked, calibration, width)

    def _facts(self, problem: Problem, label: str) -> dict[str, Any]:
        return {
            "mode": str(self.mode),
            "levels": self.levels,
            "withdraw": self.withdraw,
            "local_search": self.local_search,
            "rearrange": self.rearrange,
            "calibration": label,
            **({"order": str(self.order)} if problem.op is Op.SDDMM else {}),
            **({"cost_model": str(self.cost_model)} if self.cost_model != Pricing.LINE else {}),
            **({"searched_width": self.searched_width} if self.searched_width else {}),
            **({"keep_mixture": True} if self.keep_mixture else {}),
        }


def _has_blocks(problem: Problem) -> bool:
    """Tell whether there is a kernel for block tiles."""
    if problem.op is Op.SDDMM:
        return problem.dtype.narrow
    return problem.width % _MATRIX_UNIT_COLUMNS == 0
