"""A platform that configs are collected for: SPADE-like, simulated, ours, and not the published simulator.

A simulator computes no result, so that it is no implementation: nothing here makes a record of a case.

DASH ("DASH: Data-efficient learned cost models for sparse matrix computations on emerging hardware platforms", section
2.2, table 1, appendix B) names the tunables of its accelerator and publishes no value of them: the values are ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Candidate, Config
from spmark.impls.core.problem import Op, Problem
from spmark.impls.spade_sim.machine import BYPASS, check_dtype
from spmark.impls.spade_sim.simulate import Simulator
from spmark.impls.tuning.platform import CommonLoops, Platform, digest_of_values
from spmark.impls.tuning.space import Axis, Space

P_ROW: Final = (8, 32, 128, 512)
"""Rows of a tile."""
P_COL: Final = (1 << 10, 1 << 13, 1 << 16, 1 << 20)
"""Columns of a tile: of the machine's cache, B of 128 columns takes an eighth, all, and eight times; the last value
leaves matrices of up to a million columns whole."""
SPLITS: Final = (1, 2, 4)
"""Slices that the dense width is cut into."""
_MOST_TILE_COLUMNS: Final = 1 << 10
"""A matrix is cut into no more columns of tiles, each of which may end with a barrier."""
_TILE_ROWS: Final = 128
"""Rows of a tile by default: 32 PEs have two tiles each from some 8,000 rows on."""
_OWN = (Axis.of("bypass", BYPASS), Axis.of("reorder", (False, True)))
"""What phi leaves out; phi sees the barrier in the order of loops."""


class SpadePlatform(Platform):
    """Configs of the simulated accelerator."""

    name: ClassVar[str] = "spade_sim"
    kind: ClassVar[DeviceKind | None] = None
    note: ClassVar[str] = "SPADE-like, simulated; not the published simulator"
    cost_models: ClassVar[Mapping[str, str]] = {"dash": "spmark.impls.dash.cost_models:TransferredScores"}

    def space(self, problem: Problem) -> Space:
        """Give every config that differs from the others on a problem.

        The tunables of a config:

        - ``p_row``, ``p_col``: rows and columns of a tile of A. A value beyond the matrix is legal only if it is the
          least that covers the matrix. A ``p_col`` that cuts A into more than 1,024 columns of tiles is illegal.
        - ``d_split``: columns of a slice of the dense width J; it divides J.
        - ``barrier``: all PEs end a column of tiles before one of them begins the next. It needs two columns of tiles.
        - ``bypass``: what skips the cache, a key of `BYPASS`.
        - ``reorder``: rows that share columns stand together (`spmark.impls.formats.nearness.near_order`).

        Parameters
        ----------
        problem : Problem
            In float32.

        Returns
        -------
        Space
            Up to 672 configs.

        Raises
        ------
        ProblemError
            The problem is not in float32.
        """
        check_dtype(problem)
        num_rows, num_cols = problem.matrix.shape
        least = min(P_COL[-1], -(-num_cols // _MOST_TILE_COLUMNS))
        axes = (
            Axis.of("p_row", _covering(P_ROW, num_rows)),
            Axis.of("p_col", _covering([cols for cols in P_COL if cols >= least], num_cols)),
            Axis.of("d_split", (problem.width // parts for parts in SPLITS if problem.width % parts == 0)),
            Axis.of("barrier", (False, True)),
            *_OWN,
        )
        return Space(axes, lambda config: not config["barrier"] or config["p_col"] < num_cols)

    def default(self, problem: Problem) -> Config:
        """Give the config that a speed-up is over: what a user would take who knows nothing of the matrix.

        Tiles have 128 rows, or the greatest legal number below, and the most columns. The dense width is whole. There
        is no barrier and no reordering. The stream of A, which is read once, skips the cache.
        """
        return {
            "p_row": min(_TILE_ROWS, _covering(P_ROW, problem.matrix.num_rows)[-1]),
            "p_col": _covering(P_COL, problem.matrix.num_cols)[-1],
            "d_split": problem.width,
            "barrier": False,
            "bypass": "sparse",
            "reorder": False,
        }

    def digest(self, op: Op) -> str:
        """Give one digest for both operators, which have the same tunables."""
        values = {"p_row": P_ROW, "p_col": P_COL, "splits": SPLITS}
        return digest_of_values({**values, "own": [axis.values for axis in _OWN]})

    def common(self, config: Config) -> CommonLoops:
        """Give the part of a config that CPU and GPU have as well: DASH's phi (section 3.3).

        The paper maps ``phi(p_col, p_row, s_split, b) = (I, J, K, omega)`` with I ~ p_col, J ~ p_row and K ~ s_split.
        It writes i, j and k for the rows of A, the columns of A and the dense width. Its text says that p_col tiles i
        and p_row tiles j. Here, ``p_row`` counts the rows of a tile, so that it is the paper's p_col.

        Returns
        -------
        CommonLoops
            The splits are ``p_row``, ``p_col``, ``d_split``. The order is ``k2 j2 i2 i1 j1 k1`` with a barrier, else
            ``k2 i2 j2 i1 j1 k1``.
        """
        tiles = ("j2", "i2") if config["barrier"] else ("i2", "j2")
        return CommonLoops((config["p_row"], config["p_col"], config["d_split"]), ("k2", *tiles, "i1", "j1", "k1"))

    def own_axes(self, op: Op) -> tuple[Axis, ...]:
        """Give what skips the cache, and whether rows are reordered."""
        return _OWN

    def measure(self, problem: Problem, configs: Sequence[Config], device: DeviceSpec | None) -> list[Candidate]:
        """Price configs: one simulated time each, the same on every machine. O(configs nnz J / d_split) time.

        Raises
        ------
        ProblemError
            The problem is not in float32, or a config does not fit it.
        """
        simulator = Simulator(problem)
        return [Candidate(config, samples_us=(simulator.run(config).seconds * 1e6,)) for config in configs]


def _covering(values: Sequence[int], length: int) -> list[int]:
    """Give the values below ``length`` and the first that reaches it."""
    return [value for value, below in zip(values, (0, *values), strict=False) if below < length]
