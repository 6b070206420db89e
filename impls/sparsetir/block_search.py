"""The search over block formats: every shape of blocks with every tile, cut rows, then the best few with turned starts.

SparseTIR offers BSR(32), DBSR(32) and SR-BCRS(8, 16) for pruned weights and searches the schedule (Ye et al., ASPLOS
2023, sections 4.3.1 and 4.3.2). Here the shape of a block is searched as well: tall blocks read B less often and store
more zeros, and the better trade depends on the matrix. Where a grid would leave multiprocessors idle, block rows are
cut in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from spmark.impls.core.errors import BuildError
from spmark.impls.core.interfaces import Config, DeviceArray
from spmark.impls.core.problem import Problem
from spmark.impls.formats.bsr import BsrFormat, DenseBlocks
from spmark.impls.formats.srbcrs import SrBcrsFormat
from spmark.impls.kernels.block_spmm import BlockSpmmPlan, block_instance, vector_of
from spmark.impls.kernels.family import Build, OneFormat, taken_apart
from spmark.impls.kernels.panel_spmm import GROUP, PANEL, PanelSpmmPlan, panel_instance
from spmark.impls.kernels.strip_spmm import SIDE, STRIPS, StripSpmmPlan, strip_instance
from spmark.impls.kernels.strip_spmm import TILES as STRIP_TILES
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import Instance
from spmark.impls.tuning.race import Race
from spmark.impls.tuning.space import key_of
from spmark.impls.tuning.strategies import along, exhaustive

ROWS = (16, 32, 64, 96, 128)
"""R of BSR(R, C): the rows of a thread block. R = 2 b, 3 b and so on stack block rows of b rows."""
COLS = (16, 32, 64, 128)
"""C of BSR(R, C)."""
PANELS = ((PANEL, GROUP), (16, 32), (32, 32), (32, 64), (64, 64))
"""t and g of SR-BCRS(t, g)."""
PARTS = (2, 4, 8)
"""Thread blocks that share the longest block row where the grid is small."""
_TURNED = 3
"""Best configs that are tried with turned starts."""
_PLAIN = {"turned": False, "parts": 1}
FORM = ("block_rows", "block_cols", "t", "g")
"""Tunables of the format."""


def block_space(problem: Problem, rows: int = 0, cols: int = 0) -> list[Config]:
    """List the configs of BSR and DBSR, small blocks first.

    Parameters
    ----------
    problem : Problem
    rows, cols : int
        R and C where they are pinned. Otherwise blocks are at most as wide as high, and at most 128 x 128.

    Returns
    -------
    list of dict
        ``block_rows, block_cols, tile, depth, turned, parts``.
    """
    shapes = [(r, c) for c in COLS for r in ROWS if rows in (0, r) and cols in (0, c)]
    if not (rows and cols):
        shapes = [(r, c) for r, c in shapes if (r == 16) == (c == 16) and (c < 128 or r == 128)]
        shapes = [(r, c) for r, c in shapes if c <= r] or shapes
    return [
        {"block_rows": r, "block_cols": c, "tile": tile, "depth": _depth(problem, r, c), **_PLAIN}
        for r, c in shapes
        for tile in _tiles(problem)
    ]


def panel_space(problem: Problem, t: int = 0) -> list[Config]:
    """List the configs of SR-BCRS, low panels first: ``t, g, tile, turned`` and, but for t = 8, ``depth, parts``."""
    space: list[Config] = []
    for rows, group in PANELS:
        if t in (0, rows):
            form = {"t": rows, "g": group}
            depth = group if vector_of(problem.width) == 8 else 16
            schedule = {"turned": False} if rows == PANEL else {"depth": depth, **_PLAIN}
            space += [{**form, "tile": tile, **schedule} for tile in _tiles(problem)]
    return space


def strip_space(problem: Problem, rows: int = 0, cols: int = 0) -> list[Config]:
    """List the configs of BSR(16, 16) without shared memory: ``block_rows, block_cols, strips, tile``."""
    if rows not in (0, SIDE) or cols not in (0, SIDE) or vector_of(problem.width) == 1:
        return []
    form = {"block_rows": SIDE, "block_cols": SIDE}
    return [{**form, "strips": strips, "tile": tile} for strips in STRIPS for tile in STRIP_TILES]


def _tiles(problem: Problem) -> tuple[int, ...]:
    return (64, 128) if vector_of(problem.width) == 8 and problem.width > 64 else (64,)


def _depth(problem: Problem, rows: int, cols: int) -> int:
    if vector_of(problem.width) == 1 or rows == 16:
        return 16
    return min(cols, 64 if rows >= 64 else 32)


def middle(space: Sequence[Config]) -> Config:
    """Give the paper's config, BSR(32, 32) or SR-BCRS(8, 16), or the first config where pinning excludes it."""
    named = ({"block_rows": 32, "block_cols": 32}, {"t": PANEL, "g": GROUP})
    return next((c for c in space if any(form.items() <= c.items() for form in named)), space[0])


def varied(space: Sequence[Config]) -> Iterator[Config]:
    """Give the configs of a space with every value that `run_through` may try on them."""
    for config in space:
        for parts in (1, *PARTS) if "parts" in config else (0,):
            for turned in (False, True) if "turned" in config else (False,):
                yield {name: {"parts": parts, "turned": turned}.get(name, value) for name, value in config.items()}


def opened(problem: Problem, target: Target, convert: Callable[[Problem, Config], DenseBlocks]) -> Build:
    """Give what builds configs; plans of one format share it, and refused formats are not tried again.

    Parameters
    ----------
    problem : Problem
    target : Target
    convert : callable
        Gives the matrix in the format of a config, or raises BuildError. Formats whose blocks consist of whole blocks
        of a refused format store as much, so that they are refused for the same reason.
    """
    refused: list[tuple[Config, str]] = []

    def held(form: Config) -> DenseBlocks:
        for less, why in refused:
            if all(form[name] % less[name] == 0 for name in form):
                raise BuildError(why)
        try:
            return convert(problem, form)
        except BuildError as error:
            refused.append((form, str(error)))
            raise

    def build(blocks: DenseBlocks, config: Config, arrays: Sequence[DeviceArray]) -> DevicePlan:
        form, schedule = taken_apart(config, FORM)
        if "strips" in schedule:
            return StripSpmmPlan(problem, target, cast("BsrFormat", blocks), form, arrays=arrays, **schedule)
        if isinstance(blocks, SrBcrsFormat) and blocks.block_shape == (PANEL, GROUP):
            return PanelSpmmPlan(problem, target, blocks, form, arrays=arrays, **schedule)
        return BlockSpmmPlan(problem, target, blocks, form, arrays=arrays, **schedule)

    blocks = OneFormat(held, build)
    return lambda config: blocks.plan(taken_apart(config, FORM)[0], config)


def run_through(race: Race[Any], space: Sequence[Config], is_small: Callable[[Config], bool]) -> None:
    """Time every config, then configs of small grids with rows cut in parts, then the best few with turned starts."""
    seen = {key_of(timed.config): timed for timed in race.time_all(space)}
    for config in space:
        if "parts" in config and is_small(config):
            best = race.time(along(race, config, "parts", PARTS))
            seen[key_of(best.config)] = best
    ordered = [timed.config for timed in sorted(seen.values(), key=lambda timed: timed.us)]
    turnable = [config for config in ordered if "turned" in config]
    exhaustive(race, [{**config, "turned": True} for config in turnable[:_TURNED]])


def grid(problem: Problem, config: Config) -> int:
    """Count the thread blocks of a config without parts."""
    rows = config["t"] if "t" in config else config["block_rows"]
    return ceil_div(problem.matrix.num_rows, rows) * ceil_div(problem.width, config["tile"])


def block_kernel(problem: Problem, config: Config) -> Instance:
    """Give the kernel of a config."""
    if "strips" in config:
        return strip_instance(config["strips"], config["tile"])
    if config.get("t") == PANEL:
        return panel_instance(problem.width, config["tile"])
    rows = config["t"] if "t" in config else config["block_rows"]
    return block_instance(problem.width, rows, config["tile"], config["depth"], gathered="t" in config)
