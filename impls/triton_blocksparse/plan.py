"""Block-sparse products by Triton, the baseline of SparseTIR's attention and block-pruned layers.

Tillet, Kung and Cox, "Triton: An Intermediate Language and Compiler for Tiled Neural Network Computations", MAPL 2019.
The programs are ours (`spmark.impls.triton_blocksparse.kernels`), tuned over the schedule that Triton leaves open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import not_installed
from spmark.impls.core.interfaces import Config, Plan
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.formats.bsr import BsrFormat
from spmark.impls.kernels.family import KernelFamily
from spmark.impls.runtime.target import too_wide
from spmark.impls.runtime.template import KernelTemplate, TemplateValue
from spmark.impls.tuning.race import Race
from spmark.impls.tuning.strategies import exhaustive
from spmark.impls.tuning.tune import tune

BLOCKS = (16, 32, 64)
_MOST_COLUMNS = 128


# `stages` and `threads` are options of Triton's compiler; the rest are the program's own template arguments.
_SCHEDULE: dict[str, tuple[TemplateValue, ...]] = {
    "S": BLOCKS,
    "GROUP": (1, 2, 4),
    "TILE": (16, 32, 64, 128),
    "stages": (1, 2, 3, 4),
    "threads": (32, 64, 128, 256),
}
_SOURCE = Path(__file__).parent / "kernels.py"
SPMM = KernelTemplate(_SOURCE, "spmm", _SCHEDULE)
SDDMM = KernelTemplate(_SOURCE, "sddmm", {**_SCHEDULE, "FULL": (False, True), "SCALED": (False, True)})


@dataclass(frozen=True)
class TritonBlockSparse:
    """SpMM and SDDMM over BSR blocks in Triton, float16 with float32 sums."""

    name: ClassVar[str] = "triton_blocksparse"
    ops: ClassVar[frozenset[Op]] = frozenset(Op)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA})
    needs: ClassVar[tuple[str, ...]] = ("triton",)
    extra: ClassVar[str] = "triton"

    retired: ClassVar[Mapping[str, Any]] = {"block": 0, "tuned": True}

    def stored_as(self, problem: Problem, device: DeviceSpec, config: Config) -> BsrFormat:
        """Cut A into the blocks of a config."""
        return BsrFormat.from_csr(problem.matrix, config["block"], config["block"])

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse float32, which Triton's dot would round to tf32, and say where Triton is missing."""
        if problem.dtype is not DType.FLOAT16:
            return f"expected float16 (the matrix unit rounds float32 to tf32), found {problem.dtype}"
        return (too_wide(problem.width, widest_tile(problem)) if problem.op is Op.SPMM else None) or _missing()

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Search where A has non-zeros, then compile, convert and upload.

        Raises
        ------
        BuildError
            No candidate could be built; the error carries the reasons.
        """
        from spmark.impls.triton_blocksparse.gpu import opened

        def space(block: int) -> list[Config]:
            return [middle(problem, block), *schedules(problem, block)]

        def strategy(race: Race[Any]) -> None:
            """Time a middle config of every block size, then every schedule of the best."""
            exhaustive(race, space(exhaustive(race, [middle(problem, size) for size in BLOCKS]).config["block"]))

        family = KernelFamily(
            mark="group",
            axes=lambda *_: {"config": [config for size in BLOCKS for config in space(size)]},
            opened=opened,
        )
        return tune(problem, device, [family], strategy, owner=self.name)


def widest_tile(problem: Problem) -> int:
    """Give the largest tile of J that is worth trying: at most the next power of two."""
    tiles = [int(tile) for tile in _SCHEDULE["TILE"]]
    return next((tile for tile in tiles if tile >= problem.width), tiles[-1])


def middle(problem: Problem, block: int) -> Config:
    """Give a config from the middle of the space for a block size."""
    group = max(1, min(64 // block, 4))
    return {"block": block, "group": group, "tile": min(64, widest_tile(problem)), "stages": 3, "threads": 128}


def schedules(problem: Problem, block: int) -> list[Config]:
    """List the measured configs of a block size: blocks at a time, tile of J, stages, warps."""
    widest = widest_tile(problem)
    tiles = sorted({widest, max(16, widest // 2), min(64, widest)})
    stages = (2, 4) if problem.op is Op.SPMM or problem.width > widest else (1,)
    return [
        {"block": block, "group": group, "tile": tile, "stages": count, "threads": threads}
        for group, tile, count, threads in product((1, 2, 4), tiles, stages, (32, 64, 128))
        if group * block <= _MOST_COLUMNS
    ]


def _missing() -> str | None:
    lacking = not_installed(TritonBlockSparse.needs, TritonBlockSparse.extra)
    return f"{lacking}; PyTorch for CUDA brings it, too" if lacking else None
