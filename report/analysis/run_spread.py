"""How far medians of one code lie apart from run to run, as a function of duration, learned from A/A runs.

Between runs a kernel's median moves by more than the samples of one run show: memory lies elsewhere, clocks and heat
differ. `fit_spread` learns by how much from repeated runs; models of some devices ship under `spreads/`, and all others
have defaults that are meant to be too wide.

The variance of a case's log median over runs, s2 with r - 1 degrees of freedom, is modelled as

    s2 ~ T F(r - 1, df),    T = floor^2 + (jitter_us / duration_us)^2 + (error within a run)^2

which is Smyth's prior for variances (Linear Models and Empirical Bayes Methods, Statistical Applications in Genetics
and Molecular Biology 2004) with a trend: df says how far cases differ from the trend, and a difference of two runs of
a case that nobody has repeated is then a Student t with df degrees of freedom.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field
from scipy import optimize, stats

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import RecordError
from spmark.impls.core.files import path_component, written
from spmark.impls.core.untrusted import Frozen, parse_model, reading
from spmark.report.analysis.compare_inputs import PHASE, SPEEDUP, TIME, observe
from spmark.report.records import load_every_run

FEWEST_CASES = 8
"""Repeated cases below which no trend is fitted."""
_LEAST_FLOOR, _MOST_DF, _LEAST_DF = 1e-3, 1e3, 1.0


class Trend(Frozen):
    """Relative spread between runs of one quantity."""

    floor: float = Field(ge=0)
    """Standard deviation of long durations."""
    jitter_us: float = Field(ge=0)
    """Standard deviation in time that short durations have on top."""
    df: float = Field(gt=0)
    """How surely a case follows the trend, in degrees of freedom of a variance."""
    known: dict[str, tuple[float, int]] = {}
    """Of cases that were repeated: their variance over the trend's, errors within runs included, and its degrees of
    freedom."""

    def variance(self, duration_us: float) -> float:
        """Give the variance between runs of the logarithm of a duration."""
        return self.floor**2 + (self.jitter_us / duration_us) ** 2


class SpreadModel(Frozen):
    """Trends of the quantities of one device; a quantity that is missing has the default's."""

    schema_version: Literal[1] = 1
    device: str
    protocol_version: int | None
    """Protocol of the records that the model was fitted to; None for a default."""
    driver: str = ""
    runs: int = 0
    """Fewest runs of a case that the model was fitted to."""
    cases: int = 0
    trends: dict[str, Trend]

    def trend(self, quantity: str, kind: DeviceKind) -> tuple[Trend, bool]:
        """Give a quantity's trend, and whether it was learned from runs."""
        if quantity in self.trends:
            return self.trends[quantity], self.runs > 0
        defaults = _GPU if kind is DeviceKind.CUDA else _CPU
        return defaults.get(quantity, defaults[PHASE]), False


# Wider than what was measured: an H200 has 0.5 % and 0.06 us for times, with 7 degrees of freedom.
_GPU = {
    TIME: Trend(floor=0.01, jitter_us=0.5, df=8),
    SPEEDUP: Trend(floor=0.015, jitter_us=0.75, df=8),
    PHASE: Trend(floor=0.15, jitter_us=500, df=4),
}
_CPU = {
    TIME: Trend(floor=0.08, jitter_us=5, df=4),
    SPEEDUP: Trend(floor=0.10, jitter_us=5, df=4),
    PHASE: Trend(floor=0.25, jitter_us=1000, df=4),
}


def shipped_spread(device: str) -> SpreadModel | None:
    """Give the shipped model of a device, or None."""
    path = Path(str(files("spmark.report"))) / "spreads" / f"{path_component(device)}.json"
    return read_spread(path) if path.is_file() else None


def known_spread(device: str) -> SpreadModel:
    """Give the shipped model of a device, or one of defaults alone, which is meant to be too wide."""
    return shipped_spread(device) or SpreadModel(device=device, protocol_version=None, trends={})


def read_spread(path: Path) -> SpreadModel:
    """Read a model from JSON.

    Raises
    ------
    RecordError
        The file cannot be read or is not a model; the message names the field.
    """
    with reading(path, "what `spmark study spread --fit` writes", RecordError):
        return parse_model(SpreadModel, path.read_bytes())


def write_spread(model: SpreadModel, path: Path) -> None:
    """Write a model as JSON.

    Raises
    ------
    RecordError
        The file cannot be written.
    """
    with written(path, RecordError) as part:
        part.write_text(model.model_dump_json(indent=2) + "\n", encoding="utf-8")


def fit_spread(paths: Sequence[Path]) -> SpreadModel:
    """Learn a model from repeated runs of the same code (A/A).

    Parameters
    ----------
    paths : sequence of Path
        Records of one device, driver, protocol and flush: every ok record of a case and pattern is one run of it.

    Raises
    ------
    RecordError
        The records are of several devices, drivers, protocols or flushes, or fewer than `FEWEST_CASES` cases were
        repeated.
    """
    return fit_frame(load_every_run(paths), ", ".join(map(str, paths)))


def fit_frame(frame: pd.DataFrame, where: str) -> SpreadModel:
    """Do `fit_spread` on loaded records; ``where`` names them in errors."""
    origins = frame[["device", "protocol_version", "flush"]]
    origins = origins.assign(driver=[facts.driver if facts else "" for facts in frame["facts"]]).drop_duplicates()
    if len(origins) != 1:
        raise RecordError(
            f"{where}: expected runs of one device, driver, protocol and flush, found {len(origins)}: "
            f"{'; '.join(sorted(', '.join(map(str, row)) for row in origins.to_numpy()))}; fit each on its own"
        )
    (origin,) = origins.drop(columns="flush").to_dict("records")
    trends: dict[str, Trend] = {}
    runs = cases = 0
    for quantity, rows in observe(frame).dropna(subset=["error"]).groupby("quantity", sort=True):
        repeated = _repeated(rows)
        if len(repeated) >= FEWEST_CASES:
            trend = _fit(repeated)
            # A case's times spread alike in later runs; its phases do not, and are known by their trend alone.
            is_phase = str(quantity).startswith(PHASE)
            trends[str(quantity)] = trend.model_copy(update={"known": {}}) if is_phase else trend
        if quantity == TIME:
            runs, cases = int(repeated["runs"].min()) if len(repeated) else 0, len(repeated)
    if TIME not in trends:
        raise RecordError(
            f"{where}: expected at least {FEWEST_CASES} cases that were run at least twice by the same code, "
            f"found {cases}; run more cases, or the sweep again with another --out"
        )
    return SpreadModel.model_validate({**origin, "runs": runs, "cases": cases, "trends": trends})


def _repeated(rows: pd.DataFrame) -> pd.DataFrame:
    """Give one row for each case with two runs or more: runs, variance, error2 (mean square), duration_us."""
    groups = rows.assign(error2=rows["error"] ** 2).groupby(["case_id", "pattern", "implementation_version"])
    value, error2, duration_us = groups["value"], groups["error2"].mean(), groups["duration_us"].median()
    columns = {"runs": value.size(), "variance": value.var(), "error2": error2, "duration_us": duration_us}
    cases = pd.DataFrame(columns)
    return cases[(cases["runs"] >= 2) & (cases["variance"] > 0)]


def _fit(cases: pd.DataFrame) -> Trend:
    """Maximise the likelihood of the variances; a few starts, since the surface is flat where a term is unused."""
    variance, error2 = cases["variance"].to_numpy(float), cases["error2"].to_numpy(float)
    inverse2, df = cases["duration_us"].to_numpy(float) ** -2.0, cases["runs"].to_numpy(float) - 1
    typical, duration = float(np.median(np.sqrt(variance))), float(cases["duration_us"].median())

    def loss(logs: NDArray[np.float64]) -> float:
        floor, jitter, prior = _bounded(logs)
        trend = floor**2 + jitter**2 * inverse2 + error2
        return -float((stats.f.logpdf(variance / trend, df, prior) - np.log(trend)).sum())

    starts = product((typical, typical / 10), (typical * duration, typical * duration / 10), (5.0, 50.0))
    minima = [
        optimize.minimize(loss, at, method="Nelder-Mead", options={"maxiter": 4000, "xatol": 1e-5, "fatol": 1e-7})
        for at in np.log(np.array(list(starts), np.float64))
    ]
    floor, jitter, prior = _bounded(min(minima, key=lambda result: float(result.fun)).x)
    factors = variance / (floor**2 + jitter**2 * inverse2 + error2)
    known = {
        str(case): (round(float(factor), 3), int(runs) - 1)
        for (case, *_), factor, runs in zip(cases.index, factors, cases["runs"], strict=True)
    }
    return Trend(floor=round(floor, 6), jitter_us=round(jitter, 4), df=round(prior, 2), known=known)


def _bounded(logs: NDArray[np.float64]) -> tuple[float, float, float]:
    floor, jitter, df = (float(value) for value in np.exp(np.clip(logs, -40, 40)))
    return max(floor, _LEAST_FLOOR), jitter, min(max(df, _LEAST_DF), _MOST_DF)
