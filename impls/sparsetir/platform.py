"""The templates of hyb(c, k), of CSR as it comes and of SDDMM as the GPU platform of collected configs.

Every legal config has the same chance, also those that no search would try. The values of the space stand here and not
with the kernels: models know these values, so that a kernel's new tunable must not change them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Op, Problem
from spmark.impls.kernels import direct_space, direct_spmm, sddmm
from spmark.impls.kernels.ell_buckets import NEVER
from spmark.impls.kernels.hyb_spmm import HYB_SPMM, rule_width
from spmark.impls.kernels.sddmm import CSR_SDDMM, RUNS_SDDMM
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import open_target
from spmark.impls.sparsetir.plan import SparseTir
from spmark.impls.sparsetir.search import spmm_tiles
from spmark.impls.tuning.platform import CommonLoops, PlanningPlatform, digest_of_values
from spmark.impls.tuning.race import Race
from spmark.impls.tuning.space import Axis, Space
from spmark.impls.tuning.tune import builder, open_race, space_of

_THREADS = 128
"""Threads of a block in every config."""
_FIXED: Config = {"spread": 128, "together": NEVER, "threads": _THREADS}
"""Tunables of hyb that stand still, as at the start of SparseTIR's search."""
_ORDERS = ("width", "row", "near")
_MAX_WIDTHS = tuple(1 << power for power in range(3, 12))
_PARTITIONS = (1, 2, 4, 8, 16)
_WORK = (8, 16, 32, 64, 128)
_RUNS = (2, 4, 8, 16, 32)
_ROWS = (1, 2, 4)
_FAMILIES = {Op.SPMM: (HYB_SPMM, direct_space.DIRECT_SPMM), Op.SDDMM: (RUNS_SDDMM, CSR_SDDMM)}
_NEVER = 0
"""The value of an own parameter that a config's template does not have."""
_DEEP = ((1, 2), (1, 4), (1, 8), (2, 4), (4, 4), (8, 4))
"""``parts`` and ``unroll`` of CSR."""
_OWN = {
    Op.SPMM: Space.of(
        {
            "max_width": (_NEVER, *_MAX_WIDTHS),
            "order": ("none", *_ORDERS),
            "work": (_NEVER, *_WORK),
            "depth": [{"parts": parts, "unroll": unroll} for parts, unroll in ((_NEVER, _NEVER), *_DEEP)],
            "splits_rows": (False, True),
            "vectors": (1, 2),
        }
    ).axes,
    Op.SDDMM: Space.of(
        {
            "batch": (2, 4, 8),
            "searched": (False, True),  # of kernels of earlier versions; models that ship read it
            "run": (_NEVER, *_RUNS),
            "early": (False, True),
            "parts": (1, 2),
            "vectors": (1, 2, 4),
        }
    ).axes,
}


class CudaPlatform(PlanningPlatform):
    """Templates on GPUs."""

    ruled: ClassVar[frozenset[Op]] = frozenset({Op.SPMM})
    name: ClassVar[str] = "cuda"
    kind: ClassVar[DeviceKind | None] = DeviceKind.CUDA
    note: ClassVar[str] = "hyb(c, k) and CSR templates, measured"
    cost_models: ClassVar[Mapping[str, str]] = {"dash": "spmark.impls.dash.cost_models:TransferredScores"}

    def space(self, problem: Problem) -> Space:
        """Give the configs of all templates as the values of one axis, so that each has the same chance.

        SpMM: hyb by ``c, max_width, order, work`` and tile, and CSR by tile, ``parts``, ``unroll``, ``rows`` and
        ``longest``. The tile is ``vector, vectors, lanes``. SDDMM: the tiles of SparseTIR's space, and those of runs.
        """
        spaces = _spmm(problem) if problem.op is Op.SPMM else _sddmm(problem)
        return Space.of({"config": [config for space in spaces for config in space.configs()]})

    def default(self, problem: Problem) -> Config:
        """Give hyb(1, k) with the paper's rule for k, in the values of the space, and the first tile; or SDDMM's."""
        if problem.op is Op.SDDMM:
            return next(space_of(CSR_SDDMM, problem).configs())
        width = min(max(rule_width(problem), _MAX_WIDTHS[0]), _MAX_WIDTHS[-1])
        return {"c": 1, "max_width": width, "order": "width", "work": 32, **spmm_tiles(problem)[0], **_FIXED}

    def digest(self, op: Op) -> str:
        """Tell versions of the values apart; which tiles and lengths are among them follows from the problem."""
        shared = {"own": [axis.values for axis in _OWN[op]], "threads": _THREADS}
        spmm = {"c": _PARTITIONS, "rows": _ROWS, "fixed": _FIXED} if op is Op.SPMM else {}
        return digest_of_values({**shared, **spmm})

    def common(self, config: Config) -> CommonLoops:
        """Give what a block, a partition and a group take; the choice of what a split stands for is ours.

        I is the rows of A that a block takes in parallel and in turn. A group of hyb has ``work / max_width`` rows, at
        least one. In SDDMM, I counts non-zeros, which blocks take in A's order. J is the column partitions c, 1 for
        CSR and SDDMM. K is the loads of a tile of the dense width, ``lanes vectors``, and k3 is the elements of a load.

        In SpMM the tiles of the dense width are outermost. Column partitions stand outside of blocks; where there is
        one, j walks along a row inside of all that is parallel. In SDDMM the dense width is innermost.
        """
        lanes, vectors = config["lanes"], config.get("vectors", 1)
        groups = _THREADS // (lanes if _is_sddmm(config) else lanes * config.get("parts", 1))
        partitions = config.get("c", 1)
        if _is_sddmm(config):
            rows, order = config.get("run", config["batch"]), ("i1", "i2", "j", "k1", "k2", "k3")
        else:
            is_hyb = "max_width" in config
            rows = max(1, config["work"] // config["max_width"]) if is_hyb else config["rows"]
            order = ("k1", "i1", "i2", "k2", "j", "k3") if partitions == 1 else ("k1", "j", "i1", "i2", "k2", "k3")
        return CommonLoops((groups * rows, partitions, lanes * vectors), order, config["vector"])

    def own_axes(self, op: Op) -> tuple[Axis, ...]:
        """Give the operator's axes; 0 and ``none`` stand for what a template does not have."""
        return _OWN[op]

    def own(self, config: Config) -> Config:
        """Give the own parameters; ``splits_rows`` tells whether whole blocks take long rows of CSR."""
        op = Op.SDDMM if _is_sddmm(config) else Op.SPMM
        splits = config.get("longest", direct_spmm.UNSPLIT) != direct_spmm.UNSPLIT
        lacking = {name: value for axis in _OWN[op] for name, value in axis.values[0].items()}
        return {name: {**config, "splits_rows": splits}.get(name, value) for name, value in lacking.items()}

    def by_rule(self, problem: Problem, configs: Sequence[Config]) -> list[float]:
        """Score configs of SpMM by the paper's rule k = ceil(log2(nnz / I)); CSR, which has no k, comes last.

        Where k ties, fewer column partitions come first: the paper has no rule for c and searches it.
        """
        rule, most = rule_width(problem).bit_length(), 2.0 * _PARTITIONS[-1]
        return [
            abs(config["max_width"].bit_length() - rule) + config["c"] / most if "max_width" in config else math.inf
            for config in configs
        ]

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse what `SparseTir` refuses."""
        return SparseTir().unsupported(problem, device)

    def open_race(self, problem: Problem, device: DeviceSpec, **options: Any) -> Race[DevicePlan]:
        """Open a race on a GPU; ``options`` are those of `Race`."""
        return open_race(problem, device, _FAMILIES[problem.op], **options)

    def plan(self, problem: Problem, device: DeviceSpec, config: Config) -> DevicePlan:
        """Convert, compile and upload."""
        return builder(problem, open_target(device), _FAMILIES[problem.op])(config)


def _spmm(problem: Problem) -> tuple[Space, Space]:
    square = problem.matrix.num_rows == problem.matrix.num_cols
    hyb = {
        "c": _PARTITIONS,
        "max_width": _MAX_WIDTHS,
        "order": _ORDERS if square else _ORDERS[:-1],
        "work": _WORK,
        "tile": spmm_tiles(problem),
        "fixed": (_FIXED,),
    }
    direct = {
        "fixed": ({**direct_space.DIRECT, "threads": _THREADS},),
        "tile": direct_space.direct_tiles(problem.width, problem.dtype),
        "depth": [{"parts": parts, "unroll": unroll} for parts, unroll in _DEEP],
        "rows": _ROWS,
        "longest": dict.fromkeys((direct_spmm.usual_length(problem.matrix), direct_spmm.UNSPLIT)),
    }
    return Space.of(hyb), Space.of(direct, lambda config: direct_space.DIRECT_SPMM.has(problem, config))


def _sddmm(problem: Problem) -> tuple[Space, Space]:
    runs = {"tile": sddmm.run_tiles(problem.width, problem.dtype), "run": _RUNS}
    return space_of(CSR_SDDMM, problem), Space.of(runs, lambda config: config["run"] >= config["batch"])


def _is_sddmm(config: Config) -> bool:
    """Tell a config of SDDMM, which alone has a batch."""
    return "batch" in config
