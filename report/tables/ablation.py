"""The table of the worth of choosing: the plan that a search kept beside the best plan of another kind.

A choice is a key of the configs whose values are names or switches and of which a search measured several, such as
``formats`` (a mixture beside one format alone) or ``preprocess``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import log
from typing import Any

import numpy as np
import pandas as pd

from spmark.report.analysis.statistics import geometric_mean
from spmark.report.tables.table import Table

_CASE = ["case_id", "implementation_version", "environment"]
_KEYS = ["op", "dtype", "label", "choice", "chosen"]


def choices(seen: pd.DataFrame) -> pd.DataFrame:
    """Give how much faster the best plan with the chosen value is than the best with any other.

    Parameters
    ----------
    seen : DataFrame
        As `spmark.report.candidates.measured` gives it.

    Returns
    -------
    DataFrame
        One row for each op, dtype, label, choice and chosen value: ``cases`` and ``matrices`` that chose it while
        another value was measured; ``over_next_speedup`` with its interval over matrices, geometric mean of the best
        time with another value over the best time with this one; the least and the greatest.
    """
    cases = sorted(seen.groupby(_CASE, sort=False).indices.values(), key=lambda places: int(places[0]))
    times, configs = seen["seen_us"].to_numpy(np.float64), seen["candidate"].to_numpy()
    about = seen[["op", "dtype", "label", "matrix"]].iloc[[int(places[0]) for places in cases]]
    rows = [
        (*of[:3], choice, chosen, of[3], ratio)
        for of, places in zip(about.itertuples(index=False, name=None), cases, strict=True)
        for choice, chosen, ratio in _of_case(times[places].tolist(), list(configs[places]))
    ]
    ratios = pd.DataFrame(rows, columns=[*_KEYS, "matrix", "ratio"])
    made = [
        dict(zip(_KEYS, key, strict=True))
        | {"cases": len(part), "matrices": part["matrix"].nunique()}
        | geometric_mean(part["ratio"], list(part["matrix"])).columns("over_next_speedup")
        | {"least_speedup": part["ratio"].min(), "greatest_speedup": part["ratio"].max()}
        for key, part in ratios.groupby(_KEYS)
    ]
    return pd.DataFrame(made)


def choice_table(seen: pd.DataFrame) -> Table:
    """Give `choices` as a table, with a note for the reader."""
    note = (
        "Of the cases in which a search kept a plan with this value and also measured others: the best time with any "
        "other value over the best with the chosen one, geometric mean with a 95 % interval over matrices. The chosen "
        "one is the fastest of what was measured, so that 1 is the least there can be."
    )
    return Table("choices", "What choosing is worth", note, choices(seen))


def _of_case(times: Sequence[float], configs: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, float]]:
    """Give each choice of the fastest config, its value, and how much longer the fastest with another value takes."""
    least = min(times)
    for choice, chosen in configs[times.index(least)].items():
        if not isinstance(chosen, str | bool):
            continue
        others = [us for us, config in zip(times, configs, strict=True) if config.get(choice, chosen) != chosen]
        if others:
            yield choice, str(chosen), float(np.exp(log(min(others)) - log(least)))
