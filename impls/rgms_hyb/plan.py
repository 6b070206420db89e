"""RGMS over the 3-D hyb, one fused kernel: no product of an edge reaches memory.

Ye, Lai, Shao, Chen and Ceze, "SparseTIR: Composable Abstractions for Sparse Compilation in Deep Learning", ASPLOS 2023,
section 4.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import check_choices
from spmark.impls.core.interfaces import Config, Plan
from spmark.impls.core.relational import RelationalOp, RelationalProblem
from spmark.impls.formats.relational_hyb import WIDTHS
from spmark.impls.formats.relational_rows import why_not_rows
from spmark.impls.kernels.family import KernelFamily
from spmark.impls.kernels.ordered_rows import SUM_PIECES
from spmark.impls.kernels.relational_hyb import (
    RELATIONAL_HYB,
    RELATIONAL_MERGE,
    RGMS_HYB,
    RGMS_HYB_FLOAT,
    RGMS_MERGE,
    may_merge,
    unfit,
    usual_hyb,
)
from spmark.impls.kernels.relational_rows import RELATIONAL_ROWS, RGMS_ROWS
from spmark.impls.kernels.relational_sets import RELATIONAL_SETS, RGMS_SETS
from spmark.impls.kernels.shared_rows import ROUND_SHARED_ROWS
from spmark.impls.runtime.template import KernelTemplate
from spmark.impls.tuning.race import Race
from spmark.impls.tuning.strategies import exhaustive
from spmark.impls.tuning.tune import space_of, tune


@dataclass(frozen=True)
class RgmsHyb:
    """RGMS as SparseTIR has it, rows of each relation in ELL buckets, with a searched schedule or as published."""

    name: ClassVar[str] = "rgms_hyb"
    ops: ClassVar[frozenset[RelationalOp]] = frozenset(RelationalOp)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA, DeviceKind.HOST_SIMT})
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (
        *(RGMS_HYB, RGMS_HYB_FLOAT, RGMS_MERGE, RGMS_SETS, RGMS_ROWS),
        *(ROUND_SHARED_ROWS, SUM_PIECES),
    )

    slots: int = 0
    """Elements of a group (float32: 32, 64; 16 bits: 64, 128, 256); 0 searches."""
    widest: int = 0
    """Width of the widest bucket (1, 2, 4, 8, 16); 0 searches."""
    tile: int = 0
    """Columns of Y of a thread block in 16 bits (32, 64 up to 128 slots, 128 with 64 slots); 0 searches."""
    depth: int = 0
    """Columns of X between two barriers in 16 bits (32, 64); 0 searches."""
    ordered: bool = False
    """Add up the rows that several ELL rows share in a fixed order, in a second launch; False leaves it to the search
    whether they are added up so or atomically."""
    tuned: bool = True
    """Measure schedules on the device; otherwise take those of the published kernels."""

    def __post_init__(self) -> None:
        slots = (0, *RGMS_HYB_FLOAT.space["slots"], *RGMS_HYB.space["slots"])
        tiles, depths = ((0, *RGMS_HYB.space[name]) for name in ("tile", "depth"))
        check_choices(self, slots=slots, widest=(0, *WIDTHS), tile=tiles, depth=depths)

    def unsupported(self, problem: RelationalProblem, device: DeviceSpec) -> str | None:
        """Refuse slots and tiles for which there is no kernel, and widths beyond the grid."""
        config = usual_hyb(problem, self._pinned(problem))
        schedule = {name: value for name, value in config.items() if name not in ("slots", "widest")}
        return unfit(problem, config["slots"], schedule)

    def build(self, problem: RelationalProblem, device: DeviceSpec) -> Plan:
        """Search where edges and a device to measure on exist; otherwise take the published schedule."""
        pinned, others = self._pinned(problem), list[KernelFamily]()
        if not pinned and problem.dtype.narrow and why_not_rows(problem.matrix) is None:
            others = [RELATIONAL_ROWS]
        elif not pinned and may_merge(problem):
            others = [RELATIONAL_MERGE, RELATIONAL_SETS]
        families, strategy = [RELATIONAL_HYB, *others], partial(_search, problem, pinned, others)
        return tune(problem, device, families, strategy, owner=self.name, pinned=pinned, measured=self.tuned)

    def _pinned(self, problem: RelationalProblem) -> Config:
        axes = RELATIONAL_HYB.axes(problem, {})
        return {name: value for name, value in asdict(self).items() if name in axes and value}


def _search(problem: RelationalProblem, pinned: Config, others: Sequence[KernelFamily], race: Race[Any]) -> None:
    """Time groups with tiles, then one other tunable after the other; and every schedule of the other families.

    With wide buckets products of a row are summed before they leave the thread block, with a width of 1 products are
    added edge by edge. `RELATIONAL_MERGE` sums rows of X before the product. With `RELATIONAL_SETS` and, for maps,
    `RELATIONAL_ROWS` next to nothing is added up outside of a thread block.
    """
    configs = list(space_of(RELATIONAL_HYB, problem, pinned).configs())
    best = configs[0]
    for walked in (("slots", "tile"), *((name,) for name in best if name not in ("slots", "tile"))):
        kept = {name: value for name, value in best.items() if name not in walked}
        best = exhaustive(race, [config for config in configs if kept.items() <= config.items()]).config
    for family in others:
        exhaustive(race, space_of(family, problem).configs())
