"""Sparse convolutions on PyTorch alone, by tables of neighbours.

Graham and van der Maaten, "Submanifold Sparse Convolutional Networks", 2017: a convolution of stride 1 has a result at
the active sites and nowhere else, so that the pattern does not grow from layer to layer. Sites lie sorted by a key, so
that a neighbour is found by binary search. A table serves every layer of its resolution.

All offsets of the kernel are taken at once, one gather and one product, with zeros for neighbours that there are not:
such zeros cost less than more launches do on a GPU, and no more than a product for each offset on a processor.
"""

from __future__ import annotations

from dataclasses import dataclass

from spmark.impls.dash.sites import Sites
from spmark.impls.dash.withtorch import Layers, Tensor, load_torch

_BORDER = 2
"""Columns on either side of the grid that no site has: half of the largest kernel."""


@dataclass(frozen=True, eq=False)
class Resolution:
    """Active sites of one resolution, sorted by row, then by column."""

    rows: Tensor
    """(n,) int64."""
    cols: Tensor
    """(n,) int64."""
    num_cols: int
    """Columns of the grid."""

    def keys(self, rows: Tensor, cols: Tensor) -> Tensor:
        """Give a number for each place that rises with row and column, also for places in the border."""
        return rows * (self.num_cols + 2 * _BORDER) + cols

    def coarser(self) -> Resolution:
        """Give the sites of half the resolution: a site is active where one of its four is."""
        num_cols = (self.num_cols + 1) // 2
        keys = ((self.rows // 2) * num_cols + self.cols // 2).unique()
        return Resolution(keys // num_cols, keys % num_cols, num_cols)

    def meet(self, result: Resolution, step: int, offsets: range) -> Tensor:
        """Find the sites that lie an offset away from ``step`` times the sites of ``result``, for every offset.

        Both row and column move by ``offsets``. O(o^2 n log n) for o of them.

        Returns
        -------
        (n, offsets) int64 tensor
            The site that each site of ``result`` meets, or a row of zeros behind the sites.
        """
        torch = load_torch()
        moves = torch.cartesian_prod(*[torch.arange(offsets.start, offsets.stop, device=self.rows.device)] * 2)
        wanted = self.keys(result.rows[:, None] * step + moves[:, 0], result.cols[:, None] * step + moves[:, 1])
        own = self.keys(self.rows, self.cols)
        sources = torch.searchsorted(own, wanted).clamp_(max=max(0, len(own) - 1))
        found = own[sources] == wanted if len(own) else torch.zeros_like(wanted, dtype=torch.bool)
        # Each site has zeros of its own: in one row, the gradients of all would wait for each other.
        zeros = len(own) + torch.arange(len(wanted), device=own.device)
        return sources.where(found, zeros[:, None])


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
        self._tables: dict[tuple[int, range, bool], Tensor] = {}

    def level(self, number: int) -> Resolution:
        """Give the sites after ``number`` halvings of the resolution."""
        while len(self._levels) <= number:
            self._levels.append(self._levels[-1].coarser())
        return self._levels[number]

    def taps(self, level: int, offsets: range, halved: bool = False) -> Tensor:
        """Give the sites of a level that its own sites meet, or those of the next level, as `Resolution.meet` does."""
        key = level, offsets, halved
        if key not in self._tables:
            self._tables[key] = self.level(level).meet(self.level(level + halved), 1 + halved, offsets)
        return self._tables[key]


def gathered(features: Tensor, taps: Tensor) -> Tensor:
    """Give the features that every site meets, (n, offsets, channels), zeros where there are none."""
    met = load_torch().cat([features, load_torch().zeros_like(features)]).index_select(0, taps.flatten())
    return met.view(*taps.shape, features.shape[1])


def convolve(features: Tensor, taps: Tensor, layer: Layers) -> Tensor:
    """Convolve.

    Parameters
    ----------
    features : (n, channels) tensor
    taps : (sites of the result, offsets) int64 tensor
        Of `Pyramid.taps`.
    layer : torch.nn.Linear
        From ``offsets * channels`` to the channels of the result, the channels of the first offset first.

    Returns
    -------
    (sites of the result, result's channels) tensor
    """
    return layer(gathered(features, taps).flatten(1))


def pool(features: Tensor, children: Tensor) -> Tensor:
    """Give the greatest of the sites that each coarser site covers, (n, channels); features must be 0 or more."""
    return gathered(features, children).amax(1)


def average(features: Tensor) -> Tensor:
    """Give the mean over all sites, (channels,); zeros where there is no site."""
    return features.sum(0) / max(1, features.shape[0])
