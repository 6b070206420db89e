"""From measured tiles to the cost model: the line, the networks, and how well either predicts tiles it has not seen.

Fang, Shen, Wang and Chen, "STile", SIGMOD 2024, section 3.2 (algorithm 1) and section 5.6.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import UnsupportedError
from spmark.impls.stile.calibration import Agreement, Calibration, fit_line
from spmark.impls.stile.training import train

HELD_OUT = 3
"""Every third tile is not fitted, but predicted."""


@dataclass(frozen=True, eq=False)
class Measured:
    """Tiles that are no blocks, all without atomic additions or all with them."""

    roof_bytes: NDArray[np.float64]
    """(n,) R of table 3."""
    features: NDArray[np.float64]
    """(n, 6) of `spmark.impls.stile.prices.features`."""
    milliseconds: NDArray[np.float64]
    """(n,) of one tile, on one multiprocessor."""

    @classmethod
    def of(cls, tiles: Iterable[tuple[float, NDArray[np.float64], float]]) -> Measured:
        """Gather tiles; of each its R, features and milliseconds."""
        roof, features, times = zip(*tiles, strict=True)
        return cls(np.asarray(roof), np.stack(features), np.asarray(times))

    def some(self, which: NDArray[np.bool_]) -> Measured:
        """Give those of a mask (n,)."""
        return Measured(self.roof_bytes[which], self.features[which], self.milliseconds[which])


@dataclass(frozen=True)
class Fitted:
    """Constants of one operator and dtype, and how well they predict tiles that were not fitted."""

    calibration: Calibration
    agreement: Agreement
    """Of milliseconds of tiles that are no blocks, without atomic additions."""
    learned: Calibration | None
    """The same with networks, trained on the same tiles; None where scikit-learn is not installed."""
    learned_agreement: Agreement | None
    """What `agreement` is of the line, of the first network."""

    def tables(self) -> dict[str, list[float]]:
        """Give what a calibration file holds."""
        return (self.learned or self.calibration).tables()


def fitted(calibration: Calibration, plain: Measured, atomic: Measured | None) -> Fitted:
    """Fit the line, and the networks where scikit-learn is installed, to two tiles out of three, and predict the third.

    Parameters
    ----------
    calibration : Calibration
        Says the device, the peak and what blocks cost; the rest of its line is not looked at.
    plain : Measured
    atomic : Measured, optional
        The same tiles' twins; none for SDDMM, which never adds atomically.
    """
    kept = np.arange(plain.milliseconds.size) % HELD_OUT != HELD_OUT - 1
    own, out = plain.some(kept), plain.some(~kept)
    twins = atomic.some(kept) if atomic else own.some(np.zeros(own.milliseconds.size, np.bool_))
    peak = calibration.line.peak
    line = fit_line(own.roof_bytes, own.milliseconds, twins.roof_bytes, twins.milliseconds, peak)
    found = replace(calibration, line=line)
    agreement = Agreement.of(line.a * out.roof_bytes + line.b, out.milliseconds)
    try:
        nets = tuple(train(one.features, one.milliseconds) for one in ((own, twins) if atomic else (own,)))
    except UnsupportedError:
        return Fitted(found, agreement, None, None)
    learned = Agreement.of(nets[0].milliseconds(out.features), out.milliseconds)
    return Fitted(found, agreement, replace(found, nets=nets), learned)
