"""RGMS over the 3-D hyb, one fused kernel: no product of an edge reaches memory.

Ye, Lai, Shao, Chen and Ceze, "SparseTIR: Composable Abstractions for Sparse Compilation in Deep Learning", ASPLOS 2023,
section 4.4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Config, Plan
from spmark.impls.core.relational import RelationalOp, RelationalProblem
from spmark.impls.formats.relational_rows import why_not_rows
from spmark.impls.kernels.family import KernelFamily
from spmark.impls.kernels.ordered_rows import SUM_PIECES
from spmark.impls.kernels.relational_hyb import (
    RELATIONAL_HYB,
    RGMS_HYB,
    RGMS_HYB_FLOAT,
    TILES,
)
from spmark.impls.kernels.relational_pieces import RELATIONAL_PIECES, RGMS_PIECES, may_take_pieces
from spmark.impls.kernels.relational_rows import RELATIONAL_ROWS, RELATIONAL_WIDE, RGMS_ROWS, RGMS_WIDE, may_be_wide
from spmark.impls.kernels.relational_sets import (
    RELATIONAL_SETS,
    RELATIONAL_SETS_TOGETHER,
    RGMS_SETS,
    may_multiply_together,
    may_share_sets,
)
from spmark.impls.kernels.shared_rows import ROUND_SHARED_ROWS
from spmark.impls.runtime.target import too_wide
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
        *(RGMS_HYB, RGMS_HYB_FLOAT, RGMS_PIECES, RGMS_SETS, RGMS_ROWS, RGMS_WIDE),
        *(ROUND_SHARED_ROWS, SUM_PIECES),
    )

    retired: ClassVar[Mapping[str, Any]] = dict.fromkeys(("slots", "widest", "tile", "depth"), 0)

    ordered: bool = False
    """Add up the rows that several ELL rows share in a fixed order, in a second launch; False leaves it to the search
    whether they are added up so or atomically."""
    tuned: bool = True
    """Measure schedules on the device; otherwise take those of the published kernels."""

    def unsupported(self, problem: RelationalProblem, device: DeviceSpec) -> str | None:
        """Refuse widths beyond the grid."""
        return too_wide(problem.width_out, TILES[0], "width_out")

    def build(self, problem: RelationalProblem, device: DeviceSpec) -> Plan:
        """Search where edges and a device to measure on exist; otherwise take the published schedule."""
        pinned = {"ordered": True} if self.ordered else {}
        others = list[KernelFamily]()
        if not pinned and problem.dtype.narrow and why_not_rows(problem.matrix) is None:
            others = [RELATIONAL_WIDE if may_be_wide(problem, device) else RELATIONAL_ROWS]
        elif not pinned and may_take_pieces(problem):
            others = [RELATIONAL_PIECES]
            if may_share_sets(problem):
                together = [RELATIONAL_SETS_TOGETHER] if may_multiply_together(problem, device) else []
                others += [*together, RELATIONAL_SETS]
        families, strategy = [RELATIONAL_HYB, *others], partial(_search, problem, pinned, others)
        return tune(problem, device, families, strategy, owner=self.name, pinned=pinned, measured=self.tuned)


def _search(problem: RelationalProblem, pinned: Config, others: Sequence[KernelFamily], race: Race[Any]) -> None:
    """Time groups with tiles, then one other tunable after the other; and every schedule of the other families.

    With wide buckets products of a row are summed before they leave the thread block, with a width of 1 products are
    added edge by edge. `RELATIONAL_PIECES` sums rows of X before the product. With `RELATIONAL_SETS` and, for maps,
    `RELATIONAL_ROWS` next to nothing is added up outside of a thread block.
    """
    configs = list(space_of(RELATIONAL_HYB, problem, pinned).configs())
    best = configs[0]
    for walked in (("slots", "tile"), *((name,) for name in best if name not in ("slots", "tile"))):
        kept = {name: value for name, value in best.items() if name not in walked}
        best = exhaustive(race, [config for config in configs if kept.items() <= config.items()]).config
    for family in others:
        exhaustive(race, space_of(family, problem).configs())
