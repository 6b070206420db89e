"""LO-SpMM: the weights are constants of a kernel without loops.

Lin, Sun, Shi, Zhang, Yu, Wang, Yao and Sun, "LO-SpMM: Low-cost Search for High-performance SpMM Kernels on GPUs", ACM
TACO 21(4), 2024.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import UnsupportedError, check_choices
from spmark.impls.core.interfaces import Config, Plan
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.core.stores import Forecast, Held, StoreKind
from spmark.impls.lo_spmm.constraints import MOST_REGISTERS, cov_row
from spmark.impls.lo_spmm.estimate import CYCLES_PER_S, estimate
from spmark.impls.lo_spmm.kernel import NAME
from spmark.impls.lo_spmm.machine import Emitter, TileLaunch, fitting, is_assembled, load_binary, make_code
from spmark.impls.lo_spmm.parts import SUM_PARTS, workspace_bytes
from spmark.impls.lo_spmm.rank import SHIPPED, find
from spmark.impls.lo_spmm.reorder import Reordering
from spmark.impls.lo_spmm.search import Pins, TileSpace, explore
from spmark.impls.lo_spmm.space import MOST_THREADS, SPLITS, VALUES, TileSize
from spmark.impls.lo_spmm.tuning import Chooser, choose, config_of, kernel_of
from spmark.impls.runtime.compile import Binary, kept_binary
from spmark.impls.runtime.target import MAX_GRID, Target, ceil_div, open_target
from spmark.impls.runtime.template import KernelTemplate
from spmark.impls.runtime.toolchain import nvcc_version
from spmark.impls.tuning.cache import Kept, PlanCache

_MOST_NNZ = {DeviceKind.CUDA: 1 << 20, DeviceKind.HOST_SIMT: 1 << 14}
"""Beyond this compiling takes minutes (16 cores; two on the host), and the machine code tens of megabytes."""
_LONGEST_ROW_ON_HOST = 1024
"""g++'s time grows with the square of a function's loads, each of which has a guard."""
_MOST_BYTES = 1 << 31
"""Offsets into B and C are immediates of 32 bits."""
_FORMER = {"lo_spmm": Chooser.PAPER, "lo_spmm_rank": Chooser.PAPER_RANK}
"""Modes of earlier versions, whose proxies were not the paper's, and the searches that these names stand for today."""
_MOST_PREFETCHED = 64
_MOST_MARKS = 4 << 30
"""Bytes that `spmark.impls.lo_spmm.reorder` may take."""


@dataclass(frozen=True)
class LoSpmm(Pins):
    """SpMM by constant-propagated, unrolled code."""

    name: ClassVar[str] = NAME
    ops: ClassVar[frozenset[Op]] = frozenset({Op.SPMM})
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA, DeviceKind.HOST_SIMT})
    kernels: ClassVar[tuple[KernelTemplate, ...]] = (SUM_PARTS,)
    literal_values: ClassVar[bool] = True
    retired: ClassVar[Mapping[str, Any]] = {"cpl": 0}
    cost_models: ClassVar[Mapping[str, str]] = {
        "estimate": "spmark.impls.lo_spmm.cost_models:CountedCycles",
        "rank": "spmark.impls.lo_spmm.cost_models:RankTrees",
    }

    emitter: str = Emitter.PTX
    """``ptx`` or ``cuda``."""
    mode: str = ""
    """Way of choosing (`spmark.impls.lo_spmm.tuning.Chooser`); by default ``near`` on a GPU, ``estimate`` elsewhere."""
    model: str = SHIPPED
    """Rank model of the modes that rank: the name of one that ships, or the path of a file."""
    warm: bool = True
    """Whether a kernel in PTX asks for its code before it runs it."""

    def __post_init__(self) -> None:
        check_choices(self, cpt=(0, *VALUES["cpt"]), split=(0, *SPLITS), mode=("", *Chooser, *_FORMER))
        check_choices(self, order=Reordering, emitter=Emitter)
        for name, most in (("tile_rows", MOST_REGISTERS), ("prefetch", _MOST_PREFETCHED)):
            if not 0 <= getattr(self, name) <= most:
                raise ValueError(f"expected {name} in [1, {most}], or 0 to leave it open, found {getattr(self, name)}")
        threads = self.threads or VALUES["threads"][0]
        if threads % 32 or not 0 < threads <= MOST_THREADS:
            raise ValueError(f"expected threads in whole warps, at most 1024, or 0 to search, found {self.threads}")
        if self.tiles_per_block < 0 or self.tiles_per_block * threads > MOST_THREADS:
            raise ValueError(
                f"expected tiles_per_block whose threads are at most {MOST_THREADS}, found {self.tiles_per_block} "
                f"of {threads} threads"
            )

    def chooser(self, device: DeviceSpec) -> Chooser:
        """Give the way of choosing on a device."""
        own = Chooser.NEAR if device.kind is DeviceKind.CUDA else Chooser.ESTIMATE
        return _FORMER.get(self.mode) or Chooser(self.mode or own)

    def explored(self, problem: Problem, device: DeviceSpec, mode: Chooser) -> TileSpace:
        """Apply the constraints to the space that the tunables leave, for a way of choosing."""
        cuts = self.split or mode in (Chooser.ESTIMATE, Chooser.NEAR)  # the papers do not cut columns
        return explore(problem, device, self if cuts else replace(self, split=1))

    def stored_as(self, problem: Problem, device: DeviceSpec, config: Config) -> list[Held]:
        """Write every non-zero into the code; the config decides in which function each stands."""
        return [Held(StoreKind.LITERAL, "literals in code", problem.matrix.nnz)]

    def forecast(self, problem: Problem, device: DeviceSpec) -> Forecast:
        """Take the tile size of the least estimate; nothing is compiled."""
        space = self.explored(problem, device, Chooser.ESTIMATE)
        size = choose(space, Chooser.ESTIMATE).size
        config = config_of(size) | {"mode": str(Chooser.ESTIMATE)}
        return Forecast(config, "LO-SpMM's estimate by counting", estimate(space, size) / CYCLES_PER_S)

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse float16, which the paper does not have, and problems whose kernel would be too long."""
        return next(self._refusals(problem, device), None)

    def _refusals(self, problem: Problem, device: DeviceSpec) -> Iterator[str]:
        matrix, most = problem.matrix, _MOST_NNZ[device.kind]
        longest = matrix.longest_row
        if problem.dtype is not DType.FLOAT32:
            yield f"expected float32, found {problem.dtype}"
        if not matrix.nnz:
            yield "expected non-zeros, of which the code is made, found none"
        if self.cpt and problem.width % self.cpt:
            yield f"expected J to be a multiple of cpt = {self.cpt}, found {problem.width}"
        if self.chooser(device) is not Chooser.ESTIMATE and device.kind is not DeviceKind.CUDA:
            yield f"expected a GPU, which mode {self.mode} runs candidates on, found {device.kind}"
        if matrix.nnz > most:
            yield f"expected at most {most:,} non-zeros in one unrolled kernel, found {matrix.nnz:,}"
        if device.kind is DeviceKind.HOST_SIMT and longest > _LONGEST_ROW_ON_HOST:
            yield f"expected at most {_LONGEST_ROW_ON_HOST:,} non-zeros in a row on the host, found {longest:,}"
        if max(matrix.shape) * problem.width * problem.dtype.itemsize >= _MOST_BYTES:
            yield f"expected B and C below 2 GiB, found {max(matrix.shape):,} rows of {problem.width:,} columns"
        if self.split and workspace_bytes(problem, self.split) >= _MOST_BYTES:
            yield f"expected {self.split} times C below 2 GiB, found {problem.out_shape} elements"
        if matrix.num_rows * max(1, self.split) > MAX_GRID[1]:
            yield f"expected at most {MAX_GRID[1]:,} rows in all parts, found {matrix.num_rows * max(1, self.split):,}"
        tiles = ceil_div(matrix.num_rows, self.tile_rows or VALUES["tile_rows"][0])
        if self.order == Reordering.GREEDY and tiles * matrix.num_cols > _MOST_MARKS:
            yield f"expected at most 4 GiB of marks for order greedy, found {tiles:,} x {matrix.num_cols:,}"

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Search, write the kernel, and compile or assemble it, or load a kernel that was built before."""
        return LoSpmmPlan(problem, open_target(device), self)

    def load(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Build the plan unless it is kept already, then load it: the plan accounts for the loading alone."""
        if device.kind is not DeviceKind.CUDA or self.emitter != Emitter.PTX:
            raise UnsupportedError(
                f"expected emitter ptx on a GPU for again: no other plan is kept, found {self.emitter}, {device.kind}"
            )
        self.build(problem, device)
        return LoSpmmPlan(problem, open_target(device), self, alone=True)


def _cache_of(problem: Problem, device: DeviceSpec, how: LoSpmm) -> PlanCache:
    """Give where a plan is kept, by the model's digest, too: a file may get another model under its name."""
    pinned = asdict(how) | {"tools": nvcc_version()}
    if how.chooser(device).ranks:
        pinned["model_digest"] = find(how.model).digest
    return PlanCache("lo_spmm", problem, device, pinned, values=True)


def _read(cache: PlanCache) -> tuple[Kept, TileSize, Binary] | None:
    """Give the kept plan with its code; None where either is missing or damaged.

    Both are of this user's own cache: a plan out of a saved operator could name the code of another matrix.
    """
    kept = cache.read_own()
    with suppress(KeyError, TypeError, ValueError):
        if kept is not None and (binary := kept_binary(kept.more["code_key"])) is not None:
            return kept, TileSize(**kept.more["size"]), binary
    return None


class TilePlan(TileLaunch):
    """A launch with the search that chose it."""

    def build(self, problem: Problem, how: LoSpmm, **fused: Any) -> Kept:
        """Search, then write and compile the chosen kernel unless the race has run it; give what may be kept.

        Parameters
        ----------
        problem : Problem
        how : LoSpmm
        **fused
            Fields of `UnrolledKernel` beside those of SpMM.
        """
        mode, emitter = how.chooser(self.target.spec), Emitter(how.emitter)
        assembled = is_assembled(self.target, emitter)
        with self.phase("search"):
            space, race = how.explored(problem, self.target.spec, mode), None
            if mode is not Chooser.ESTIMATE and len(space.survivors.sizes) > 1:
                from spmark.impls.lo_spmm.gpu import open_race

                race = open_race(space, self.target, emitter=emitter, warm=how.warm, proxies=mode.by_proxies)
            size, self.search, launched = choose(space, mode, race, find(how.model) if mode.ranks else None)
        if launched is not None and not mode.by_proxies:
            self.phases_s |= {"convert": 0.0, "compile": 0.0}  # the search's
            code, num_tiles = launched.code, launched.num_tiles
        else:
            with self.phase("convert"):
                kernel = replace(space.kernel(*kernel_of(size), how.warm), **fused)
                num_tiles = kernel.dispatch.size
            with self.phase("compile"):
                code = make_code(kernel, self.target, emitter, size.block_threads)
                size = fitting(code, size, self.target)
        self.take(code, size, num_tiles, problem, sums=None)
        dealt, survivors = space.dealt(size.tile_rows, size.split), space.survivors
        self.config |= config_of(size) | {
            "mode": str(mode),
            "tile_width": size.tile_width,
            "prefetch": space.pins.depth(size.tile_rows, size.cpt),
            "nnc_sum": int(dealt.nnc.sum()),
            "cov_row": round(cov_row(dealt.nnz), 4),
            "emitter": str(Emitter.PTX if assembled else Emitter.CUDA),
            **{f"after_{stage}": count for stage, count in survivors.counts.items()},
            **({"model": how.model} if mode.ranks else {}),
            **({"waived": survivors.relaxed} if survivors.relaxed else {}),
            **({"registers": code.registers} if code.registers else {}),
            **({"warm": how.warm} if assembled else {}),
        }
        code_facts = {"size": vars(size), "num_tiles": num_tiles, "code_key": code.cache_key}
        return Kept(self.config, self.search, self.phases_s, code_facts)


class LoSpmmPlan(TilePlan):
    """C = A B by one launch, which also writes the rows that A leaves empty; deterministic.

    Where the columns of A are cut into parts, a second launch adds the parts: runs of such a plan must not overlap.
    """

    def __init__(self, problem: Problem, target: Target, how: LoSpmm, *, alone: bool = False) -> None:
        super().__init__(problem, target, {"order": str(how.order)})
        with self.phase("search"):
            cache = _cache_of(problem, target.spec, how) if is_assembled(target, Emitter(how.emitter)) else None
            kept = _read(cache) if cache else None
        if kept is None:
            built = self.build(problem, how)
            if cache is not None:
                cache.write(built)
            return
        own, size, binary = kept
        with self.phase("upload"):
            self.take(load_binary(binary, own.more["code_key"]), size, own.more["num_tiles"], problem, sums=None)
        self.config |= own.config
        if alone:  # only the loading takes time
            self.config["loaded"] = True
            return
        self.phases_s |= own.phases_s
        self.search = own.search
