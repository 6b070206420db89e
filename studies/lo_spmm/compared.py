"""How well proxies order candidates: Kendall's tau between the times of proxies and of the kernels they stand for.

The paper shows that proxies find fast kernels (table 4) and gives no rank correlation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

import numpy as np

from spmark.impls.core.digest import implementation_version
from spmark.impls.core.interfaces import Config
from spmark.impls.lo_spmm.search import TileSpace
from spmark.impls.lo_spmm.space import TileSize
from spmark.impls.lo_spmm.tuning import by_kernel, config_of, kernel_of
from spmark.impls.tuning.race import Race
from spmark.impls.tuning.strategies import by_turns
from spmark.studies.orders import kendall
from spmark.studies.rows import Row

CANDIDATES = 10


class Compared(Row):
    """Candidates of one layer, timed as kernels and as proxies; a line of a file."""

    layer: str
    device: str
    sizes: tuple[TileSize, ...]
    real_us: tuple[float, ...]
    """Medians of the kernels."""
    proxy_us: tuple[float, ...]
    estimate: tuple[float, ...]
    """Cycles."""
    implementation_version: str = ""

    @property
    def tau(self) -> float:
        """Kendall's tau of proxies and kernels."""
        return kendall(np.array(self.proxy_us), np.array(self.real_us))

    @property
    def tau_of_estimate(self) -> float:
        """Kendall's tau of the estimate and kernels."""
        return kendall(np.array(self.estimate), np.array(self.real_us))

    @property
    def regret(self) -> float:
        """Time of the proxies' choice over that of the best candidate, minus 1; NaN without candidates."""
        if not self.sizes:
            return float("nan")
        return self.real_us[int(np.argmin(self.proxy_us))] / min(self.real_us) - 1


def spread_out(space: TileSpace) -> list[TileSize]:
    """Choose candidates evenly over the order of their estimates, from the best to the worst."""
    ordered = sorted(space.survivors.sizes, key=space.cycles)
    places = np.unique(np.linspace(0, len(ordered) - 1, min(CANDIDATES, len(ordered))).round().astype(int))
    return [ordered[place] for place in places]


def compare(
    layer: str, space: TileSpace, open_race: Callable[[bool], Race[Any]], sizes: Sequence[TileSize]
) -> Compared:
    """Time candidates for real and by proxies.

    A proxy is made for the candidates of an M1 and ``cpt`` together, as in a search. Candidates that cannot be built or
    launched are left out.

    Parameters
    ----------
    layer : str
        Name of the layer in the row.
    space : TileSpace
    open_race : callable
        Opens a race of kernels, or of proxies where it is called with True.
    sizes : sequence of TileSize
    """
    groups = [list(map(config_of, together)) for together in by_kernel(sorted(sizes, key=kernel_of))]
    real, proxy = (_medians_us(open_race(proxies), groups) for proxies in (False, True))
    timed = tuple(size for size in real if size in proxy)
    return Compared(
        layer=layer,
        device=space.device.name,
        sizes=timed,
        real_us=tuple(map(real.__getitem__, timed)),
        proxy_us=tuple(map(proxy.__getitem__, timed)),
        estimate=tuple(map(space.cycles, timed)),
        implementation_version=implementation_version("lo_spmm"),
    )


def _medians_us(race: Race[Any], groups: Sequence[Sequence[Config]]) -> dict[TileSize, float]:
    by_turns(race, groups)
    return {TileSize(**timed.config): timed.us for timed in race.seen if isfinite(timed.us)}
