"""Sparse convolutions on PyTorch alone: tables of neighbours, then gather, multiply and scatter.

Graham and van der Maaten, "Submanifold Sparse Convolutional Networks", 2017: a convolution of stride 1 has a result at
the active sites and nowhere else, so that the pattern does not grow from layer to layer. Sites lie sorted by a key, so
that a neighbour is found by binary search. A table serves every layer of its resolution.
"""

from __future__ import annotations

from dataclasses import dataclass

from spmark.impls.dash.sites import Sites
from spmark.impls.dash.withtorch import Layers, Tensor, load_torch

_BORDER = 2
"""Columns on either side of the grid that no site has: half of the largest kernel."""
Taps = list[tuple[Tensor, Tensor]]
"""For each offset of a kernel, row by row: places in the result and in the input that meet, two (m,) int32 tensors."""


@dataclass(frozen=True, eq=False)
class Resolution:
    """Active sites of one resolution, sorted by row, then by column."""

    rows: Tensor
    """(n,) int64."""
    cols: Tensor
    """(n,) int64."""
    num_cols: int
    """Columns of the grid."""

    @property
    def size(self) -> int:
        """Active sites."""
        return int(self.rows.shape[0])

    def keys(self, rows: Tensor, cols: Tensor) -> Tensor:
        """Give a number for each place that rises with row and column, also for places in the border."""
        return rows * (self.num_cols + 2 * _BORDER) + cols

    def coarser(self) -> Resolution:
        """Give the sites of half the resolution: a site is active where one of its four is."""
        num_cols = (self.num_cols + 1) // 2
        keys = ((self.rows // 2) * num_cols + self.cols // 2).unique()
        return Resolution(keys // num_cols, keys % num_cols, num_cols)

    def meet(self, result: Resolution, step: int, offsets: range) -> Taps:
        """Find the sites that lie an offset away from ``step`` times the sites of ``result``, for every offset.

        Both row and column move by ``offsets``. O(o^2 n log n) for o of them.
        """
        torch = load_torch()
        moves = torch.cartesian_prod(*[torch.arange(offsets.start, offsets.stop, device=self.rows.device)] * 2)
        wanted = self.keys(result.rows * step + moves[:, :1], result.cols * step + moves[:, 1:])
        own = self.keys(self.rows, self.cols)
        sources = torch.searchsorted(own, wanted).clamp_(max=max(0, self.size - 1))
        found = own[sources] == wanted if self.size else torch.zeros_like(wanted, dtype=torch.bool)
        counts = found.sum(1).tolist()
        places = found.nonzero()[:, 1].int().split(counts)
        return list(zip(places, sources[found].int().split(counts), strict=True))


class Pyramid:
    """A matrix's sites at every resolution, with their tables, each made when it is first asked for.

    Parameters
    ----------
    sites : Sites
    device : str
        PyTorch's name of the device that computes.
    """

    def __init__(self, sites: Sites, device: str = "cpu") -> None:
        torch = load_torch()
        rows, cols = (torch.from_numpy(array).to(device).long() for array in (sites.rows, sites.cols))
        self.features: Tensor = torch.from_numpy(sites.features).to(device)
        self._levels = [Resolution(rows, cols, sites.grid[1])]
        self._tables: dict[tuple[int, int, range], Taps] = {}

    def level(self, number: int) -> Resolution:
        """Give the sites after ``number`` halvings of the resolution."""
        while len(self._levels) <= number:
            self._levels.append(self._levels[-1].coarser())
        return self._levels[number]

    def taps(self, level: int, kernel: int) -> Taps:
        """Give the table of a convolution of stride 1."""
        return self._meet(level, level, _around(kernel))

    def strided(self, level: int, kernel: int) -> Taps:
        """Give the table of a convolution of stride 2, whose result is on the next level."""
        return self._meet(level, level + 1, _around(kernel))

    def children(self, level: int) -> Taps:
        """Give the four sites that each site of the next level covers."""
        return self._meet(level, level + 1, range(2))

    def _meet(self, level: int, result: int, offsets: range) -> Taps:
        key = level, result, offsets
        if key not in self._tables:
            self._tables[key] = self.level(level).meet(self.level(result), 1 << (result - level), offsets)
        return self._tables[key]


def convolve(features: Tensor, taps: Taps, size: int, layer: Layers) -> Tensor:
    """Convolve.

    Parameters
    ----------
    features : (n, channels) tensor
    taps : Taps
    size : int
        Sites of the result.
    layer : torch.nn.Linear
        From ``len(taps) * channels`` to the channels of the result, the channels of the first offset first.

    Returns
    -------
    (size, result's channels) tensor
    """
    weights = layer.weight.view(layer.out_features, len(taps), features.shape[1]).unbind(1)
    result = layer.bias.expand(size, -1).clone()
    for (places, sources), weight in zip(taps, weights, strict=True):
        if len(places):
            result.index_add_(0, places, features.index_select(0, sources) @ weight.T)
    return result


def pool(features: Tensor, children: Taps, size: int) -> Tensor:
    """Give the greatest of the sites that each coarser site covers, (size, channels); features must be 0 or more."""
    torch = load_torch()
    corners = []
    for places, sources in children:
        corner = features.new_zeros(size, features.shape[1])
        corners.append(corner.index_add(0, places, features.index_select(0, sources)))
    return torch.stack(corners).amax(0)


def average(features: Tensor) -> Tensor:
    """Give the mean over all sites, (channels,); zeros where there is no site."""
    return features.sum(0) / max(1, features.shape[0])


def _around(kernel: int) -> range:
    return range(-(kernel // 2), kernel // 2 + 1)
