"""A small network as plain numbers: NumPy predicts, and a calibration's tables keep the numbers, without pickles.

scikit-learn trains (`spmark.studies.stile.fitting`). The layers include the scaling of features and targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import DeviceError
from spmark.impls.core.untrusted import reading

FEATURES = 6
"""Number of a network's inputs: see `spmark.impls.stile.prices.features`."""
_DIGITS = 7


@dataclass(frozen=True)
class Net:
    """Layers of rectified units; the last one gives the logarithm of milliseconds."""

    sizes: tuple[int, ...]
    """Features, units of each layer, 1."""
    numbers: tuple[float, ...]
    """For each layer its weights (in, out), row-major, then its offsets (out,)."""

    @classmethod
    def of(cls, weights: Sequence[NDArray[np.float64]], offsets: Sequence[NDArray[np.float64]]) -> Net:
        """Copy layers, with numbers to seven digits, since people read calibrations, too.

        Parameters
        ----------
        weights : sequence of (in, out) float64
        offsets : sequence of (out,) float64
        """
        sizes = (weights[0].shape[0], *(layer.shape[1] for layer in weights))
        flat = np.concatenate([part.reshape(-1) for pair in zip(weights, offsets, strict=True) for part in pair])
        return cls(sizes, tuple(float(f"{number:.{_DIGITS}g}") for number in flat.tolist()))

    @classmethod
    def from_table(cls, table: Sequence[float], where: str) -> Net:
        """Read the answer of `table`.

        Raises
        ------
        DeviceError
            The sizes do not lead from `FEATURES` to 1, or the finite numbers are not as many as the sizes need.
        """
        told = f"the number of sizes, sizes from {FEATURES} to 1 and as many finite numbers as such layers have"
        with reading(where, told, DeviceError, "calibrate again"):
            count = int(table[0])
            net = cls(tuple(map(int, table[1 : 1 + count])), tuple(map(float, table[1 + count :])))
            wanted = sum((a + 1) * b for a, b in zip(net.sizes[:-1], net.sizes[1:], strict=True))
            if (net.sizes[0], net.sizes[-1]) != (FEATURES, 1) or min(net.sizes) < 1 or len(net.numbers) != wanted:
                raise ValueError(f"{len(net.numbers)} numbers for layers of {net.sizes}")
            if not np.isfinite(net.numbers).all():
                raise ValueError("numbers that are not finite")
            return net

    def table(self) -> list[float]:
        """Give the numbers that `from_table` reads: the count of sizes, the sizes, the layers."""
        return [float(len(self.sizes)), *map(float, self.sizes), *self.numbers]

    @cached_property
    def _layers(self) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        flat, layers, at = np.asarray(self.numbers), [], 0
        for a, b in zip(self.sizes[:-1], self.sizes[1:], strict=True):
            layers.append((flat[at : at + a * b].reshape(a, b), flat[at + a * b : at + (a + 1) * b]))
            at += (a + 1) * b
        return layers

    def milliseconds(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Predict, (n,) above zero.

        Parameters
        ----------
        features : (n, f) float64
        """
        *hidden, (weights, offsets) = self._layers
        for layer, offset in hidden:
            features = np.maximum(features @ layer + offset, 0.0)
        return np.exp(features @ weights + offsets)[:, 0]
