"""From measured tiles to the cost model: the line, the networks, and how well both predict tiles outside of the fit.

Fang, Shen, Wang and Chen, "STile", SIGMOD 2024, section 3.2 (algorithm 1) and section 5.6.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spmark.impls.core.errors import UnsupportedError, needed
from spmark.impls.core.problem import DType, Op
from spmark.impls.stile.calibration import SECTOR, Calibration, Line, shipped
from spmark.impls.stile.net import Net
from spmark.impls.stile.prices import ONE_DIMENSION, ell_bytes, features, run_bytes
from spmark.records.sixdigits import six_digits
from spmark.studies.contracts import CalibrationJob, Constants

HELD_OUT = 3
"""Every third tile is left out of the fit and predicted."""
_PEAKS = tuple(2.0 ** (-half / 2) for half in range(13))
"""Shares of the device's peak that the roofline is tried with: a kernel that gathers reaches only a share."""
_READS = (float(SECTOR), 128.0)
"""Least bytes of a read of a row of B that the roofline is tried with: a sector, a cache line."""
_SAME = 1e-9
"""Difference of ratios below which they differ only by rounding."""

HIDDEN = (64, 32)
"""Units of the network's layers, as in the public code."""
_DECAY = 1e-2
_ROUNDS = 2000
Tile = tuple[int, int, int, int]
"""Rows, non-zeros of a row, different columns, and columns of the dense operand (SpMM) or J (SDDMM)."""


@dataclass(frozen=True, eq=False)
class Measured:
    """Light tiles: ELL tiles of SpMM, one-dimensional tiles of SDDMM."""

    tiles: NDArray[np.float64]
    """(n, 4) the `Tile` of each."""
    plain_ms: NDArray[np.float64]
    """(n,) milliseconds of one tile, on one multiprocessor, where no other tile adds into its rows."""
    atomic_ms: NDArray[np.float64]
    """(n,) milliseconds of its twin with atomic additions; 0 for SDDMM, which adds nothing atomically."""

    @classmethod
    def of(cls, tiles: Iterable[tuple[Tile, float, float]]) -> Measured:
        """Gather tiles with their milliseconds, to six digits."""
        rows = np.array([(*tile, *map(six_digits, times)) for tile, *times in tiles], np.float64)
        return cls(rows[:, :4], rows[:, 4], rows[:, 5])

    def table(self) -> list[float]:
        """Give for each tile its four numbers and both times, as calibration files have them."""
        return [float(x) for x in np.column_stack([self.tiles, self.plain_ms, self.atomic_ms]).reshape(-1)]

    def some(self, which: NDArray[np.bool_]) -> Measured:
        """Give the tiles that a mask (n,) marks."""
        return Measured(self.tiles[which], self.plain_ms[which], self.atomic_ms[which])

    def roof_bytes(
        self, op: Op, dtype: DType, peak: float, atomic: bool = False, read_bytes: float = SECTOR
    ) -> NDArray[np.float64]:
        """Give R of table 3, (n,), as the search counts it."""
        roofs = [
            run_bytes(rows, columns, part, dtype.itemsize, peak)
            if op is Op.SDDMM
            else ell_bytes((rows, width, columns, part), dtype.itemsize, peak, atomic, read_bytes)
            for rows, width, columns, part in self.tiles.astype(int).tolist()
        ]
        return np.array(roofs, np.float64)

    def features(self, op: Op, dtype: DType, line: Line, atomic: bool = False) -> NDArray[np.float64]:
        """Give the network's inputs, (n, 6)."""
        rows, width, columns, part = self.tiles.T
        roof = self.roof_bytes(op, dtype, line.peak, atomic, line.read_bytes)
        height, width = (1, ONE_DIMENSION) if op is Op.SDDMM else (rows, width)
        return features(height, width, rows, columns, part, roof)


class Agreement(NamedTuple):
    """How well predictions agree with measurements (section 5.6)."""

    pearson: float
    """Linear correlation, NaN where one side is constant."""
    rmse: float
    """Root of the mean squared error, in the unit of both."""

    @classmethod
    def of(cls, predicted: NDArray[np.float64], measured: NDArray[np.float64]) -> Agreement:
        """Compare two arrays (n,)."""
        with np.errstate(invalid="ignore"):
            pearson = float(np.corrcoef(predicted, measured)[0, 1])
        return cls(pearson, float(np.sqrt(np.mean(np.subtract(predicted, measured) ** 2))))


@dataclass(frozen=True)
class Fitted:
    """Constants of one operator and dtype, and how well they predict tiles outside of the fit."""

    calibration: Calibration
    agreement: Agreement
    """The line's agreement, for milliseconds of light tiles without atomic additions."""
    learned: Calibration | None
    """The calibration with networks, trained on the same tiles; None where scikit-learn is not installed."""
    measured: Measured
    """The tiles that line and networks were fitted to and compared with."""

    @property
    def held_out_us(self) -> list[tuple[float, float]]:
        """Microseconds of each tile outside of the fit, as the line predicts them and as measured, to six digits."""
        tiles = self.measured.some(held_out(self.measured))
        own = self.calibration
        pairs = zip(_predicted(own.line, tiles, own.op, own.dtype), tiles.plain_ms, strict=True)
        return [(six_digits(1e3 * predicted), six_digits(1e3 * measured)) for predicted, measured in pairs]

    def tables(self) -> dict[str, list[float]]:
        """Give the tables of a calibration file: the constants, and the tiles, so that constants can be fitted anew."""
        tables = (self.learned or self.calibration).tables()
        return {**tables, tiles_name(self.calibration.op, self.calibration.dtype): self.measured.table()}


def held_out(measured: Measured) -> NDArray[np.bool_]:
    """Mark the tiles (n,) that are left out of the fit and predicted."""
    marked: NDArray[np.bool_] = np.arange(measured.plain_ms.size) % HELD_OUT == HELD_OUT - 1
    return marked


def tiles_name(op: Op, dtype: DType) -> str:
    """Name the table of measured tiles."""
    return f"stile_{op}_{dtype}_tiles"


def fitted(calibration: Calibration, measured: Measured) -> Fitted:
    """Fit the line, and the networks where scikit-learn is installed, to two tiles out of three, and predict the third.

    Parameters
    ----------
    calibration : Calibration
        Gives the device, the operator, the peak and the costs of blocks; other fields of its line are not read. The
        fitted peak is the share of this peak that fits best, since arithmetic waits for gathered rows. The least bytes
        of a read of SpMM's B, a sector or a cache line, are those that fit best, too.
    measured : Measured
    """
    op, dtype = calibration.op, calibration.dtype
    left_out = held_out(measured)
    own, out = measured.some(~left_out), measured.some(left_out)
    reads = _READS if op is Op.SPMM else _READS[:1]
    line = min(
        (_line(own, op, dtype, share * calibration.line.peak, read) for read, share in product(reads, _PEAKS)),
        key=lambda line: float(np.sum((_predicted(line, own, op, dtype) - own.plain_ms) ** 2)),
    )
    by_line = replace(calibration, line=line)
    agreement = Agreement.of(_predicted(line, out, op, dtype), out.plain_ms)
    sides = ((False, own.plain_ms), (True, own.atomic_ms))[: 2 if op is Op.SPMM else 1]
    learned = None
    with suppress(UnsupportedError):
        nets = (train_net(own.features(op, dtype, line, atomic), times) for atomic, times in sides)
        learned = replace(by_line, nets=tuple(nets))
    return Fitted(by_line, agreement, learned, measured)


def _line(tiles: Measured, op: Op, dtype: DType, peak: float, read_bytes: float) -> Line:
    plain, twins = (tiles.roof_bytes(op, dtype, peak, atomic, read_bytes) for atomic in (False, True))
    count = tiles.plain_ms.size if op is Op.SPMM else 0  # SDDMM adds nothing atomically
    return replace(fit_line(plain, tiles.plain_ms, twins[:count], tiles.atomic_ms[:count], peak), read_bytes=read_bytes)


def _predicted(line: Line, tiles: Measured, op: Op, dtype: DType) -> NDArray[np.float64]:
    return line.a * tiles.roof_bytes(op, dtype, line.peak, read_bytes=line.read_bytes) + line.b


def fit_line(
    plain_bytes: ArrayLike, plain_ms: ArrayLike, atomic_bytes: ArrayLike, atomic_ms: ArrayLike, peak: float
) -> Line:
    """Fit the constants of tiles that were measured without and with atomic additions (algorithm 1, lines 12 and 13).

    A line that would begin below zero is drawn through zero: a tile of no bytes cannot cost less than nothing.

    Parameters
    ----------
    plain_bytes, plain_ms : (n,) float
        Roofline bytes R and the milliseconds of each tile.
    atomic_bytes, atomic_ms : (n,) float
        The same of each tile's twin with atomic additions. Both are empty where there are no such twins: then c is 0
        and d is 1.
    peak : float
        Flops for each byte.
    """
    sides = (plain_bytes, plain_ms, atomic_bytes, atomic_ms)
    r, ms, r_atomic, ms_atomic = (np.asarray(side, np.float64) for side in sides)
    a, b = map(float, np.polyfit(r, ms, 1))
    if b < 0:
        a, b = float(r @ ms / (r @ r)), 0.0
    if not r_atomic.size:
        return Line(a, b, 0.0, 1.0, peak)
    more, longer = r_atomic / r, ms_atomic / ms
    if np.ptp(more) < _SAME:  # arithmetic bounds every tile, so that atomic additions leave R as it is
        return Line(a, b, 0.0, float(longer.mean()), peak)
    c, d = map(float, np.polyfit(more, longer, 1))
    return Line(a, b, c, d, peak)


def train_net(features: NDArray[np.float64], milliseconds: NDArray[np.float64], seed: int = 0) -> Net:
    """Fit a network to measured tiles.

    Logarithms of the times are fitted, so that short tiles count as much as long ones. The method is L-BFGS, for few
    samples, with weight decay. Features and logarithms are standardised, and the first and the last layer absorb this.

    Parameters
    ----------
    features : (n, f) float64
        The answer of `spmark.impls.stile.prices.features`.
    milliseconds : (n,) float64
        Above zero.
    seed : int
        Seed of the weights that training begins with.

    Raises
    ------
    UnsupportedError
        scikit-learn is not installed.
    """
    neural_network = needed("sklearn.neural_network", "scikit-learn", "study")
    mean, scale = features.mean(0), _spread(features)
    times = np.log(milliseconds)
    middle, spread = times.mean(), _spread(times)
    model = neural_network.MLPRegressor(
        hidden_layer_sizes=HIDDEN,
        solver="lbfgs",
        alpha=_DECAY,
        max_iter=_ROUNDS,
        max_fun=10 * _ROUNDS,
        random_state=seed,
    )
    model.fit((features - mean) / scale, (times - middle) / spread)
    first, *between, last = model.coefs_
    begins, *offsets, ends = model.intercepts_
    first = first / scale[:, None]
    return Net.of([first, *between, last * spread], [begins - mean @ first, *offsets, ends * spread + middle])


def _spread(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Give the standard deviation of each column; 1 where the column is constant."""
    deviation = np.asarray(values.std(0))
    return np.where(deviation > 1e-9, deviation, 1.0)


class TileCalibration:
    """Measures the tiles of the cost model (`spmark.studies.contracts`)."""

    what: ClassVar[str] = "tiles"
    patterns: ClassVar[Sequence[str]] = ()
    shipped = staticmethod(shipped)

    def calibrate(self, job: CalibrationJob) -> Constants:
        """Measure tiles of every operator and dtype; they stand beside the device's rates."""
        from spmark.studies.stile.gpu import calibrate

        calibrated, fits = calibrate(job.device)
        agreement = [
            {
                "operator": str(fit.calibration.op),
                "dtype": str(fit.calibration.dtype),
                "block tiles": len(fit.calibration.blocks),
                "tiles held out": len(fit.held_out_us),
                "Pearson": round(fit.agreement.pearson, 4),
                "RMSE, us": round(fit.agreement.rmse * 1e3, 4),
                "predicted and measured, us": fit.held_out_us,
            }
            for fit in fits
        ]
        return Constants({".json": calibrated.text().encode()}, agreement)
