"""Times of exhaustive searches that nobody ran, extrapolated from the candidates of a sample.

For figure 11 and table 2 of Lin et al., "LO-SpMM", ACM TACO 2024, whose exhaustive searches take hours in C++.
"""

from __future__ import annotations

import pandas as pd

from spmark.report.analysis.cases import PROBLEM, spent_s
from spmark.report.analysis.statistics import mean_of
from spmark.report.tables.table import Chapter, Table

_SAMPLED, _EXHAUSTIVE, _RANKED, _PUBLISHED = "sampled", "exhaustive", "_rank", "paper"
"""How ``mode`` in a plan's config ends; and how it begins where a search keeps to the published space."""
_FACTS = ["eligible", "measured", "seconds"]
COLUMNS = (
    "op", "dtype", "matrix", "width", "label", "emitter", "candidates_run", "candidates", "seconds_per_candidate",
    "extrapolated_s", "measured_s", "rank_s", "extrapolated_over_rank", "measured_over_rank",
)  # fmt: skip


def extrapolated(derived: pd.DataFrame) -> pd.DataFrame:
    """Give what exhaustive searches would cost.

    A plan whose search ran a sample of its candidates tells how many there are, and the seconds in which it compiled
    and ran those of the sample. The seconds of one candidate times the number of all candidates stand in for these
    seconds; the rest of building stays.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it.

    Returns
    -------
    DataFrame
        `COLUMNS`, one row for each sampled search: the sample and all candidates, seconds of one, and seconds from the
        matrix to the plan: extrapolated, measured of the same problem and language where an exhaustive search of as
        many candidates is there, and of the rank model's; the ratios to the last. Unknown numbers are NaN.
    """
    rows = derived[derived["median_us"].notna() & derived["search"].notna()]
    rows = rows.assign(
        mode=rows["config"].map(lambda config: config.get("mode", "")),
        emitter=rows["config"].map(lambda config: config.get("emitter", "")),
        spent_s=spent_s(rows["phases_s"]),
    )
    facts = pd.DataFrame([(s.eligible, s.measured, s.compile_s + s.run_s) for s in rows["search"]], rows.index, _FACTS)
    rows = rows.assign(candidates=facts["eligible"].astype(int))
    told = (rows["mode"] == _SAMPLED) & (facts[["eligible", "measured"]].min(axis=1) > 0)
    sampled, (count, each, seconds) = rows[told], (facts.loc[told, name] for name in _FACTS)
    costs = sampled.assign(
        candidates_run=each.astype(int),
        seconds_per_candidate=seconds / each,
        extrapolated_s=sampled["spent_s"] + seconds / each * (count - each),
    )
    keys = [*PROBLEM, "emitter"]
    ours = rows[~rows["mode"].str.startswith(_PUBLISHED)]
    # An exhaustive search of the published space has fewer candidates than the sample was drawn from.
    for mode, name, of in ((_EXHAUSTIVE, "measured_s", [*keys, "candidates"]), (_RANKED, "rank_s", keys)):
        of_mode = ours[ours["mode"].str.endswith(mode)].groupby(of)["spent_s"].median().rename(name)
        costs = costs.join(of_mode, on=of)
    costs["extrapolated_over_rank"] = costs["extrapolated_s"] / costs["rank_s"]
    costs["measured_over_rank"] = costs["measured_s"] / costs["rank_s"]
    return costs.sort_values(["matrix", "op", "dtype", "width", "label"], kind="stable")[list(COLUMNS)].reset_index(
        drop=True
    )


def extrapolated_table(derived: pd.DataFrame) -> Table:
    """Give `extrapolated` as a table, empty where nothing was sampled, with the geometric means in its note."""
    frame = extrapolated(derived)
    note = (
        "Extrapolated, not measured: seconds per candidate of the sample (compiling and running, as an exhaustive "
        "search does both) times all candidates. Where an exhaustive search was measured in full it stands beside it."
    )
    for column, said in (("extrapolated_over_rank", "extrapolated"), ("measured_over_rank", "measured")):
        known = frame[column].dropna()
        if len(known):
            note += f" Over the rank model's search, {said}: {mean_of(known):.1f} times, {len(known)} cases."
    return Table("extrapolated", "Exhaustive searches, extrapolated", note, frame, Chapter.CASES)
