"""Which records stand on the page of a sweep: its own, and those that other sweeps lend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pandas as pd

from spmark.impls.core.names import path_component
from spmark.report.analysis.cases import choose_baseline
from spmark.report.candidates import OF_CASE
from spmark.report.records import current
from spmark.report.site.model import ListedSweep

_SAMPLES = ["samples_us", "warm_samples_us", "graph_samples_us", "baseline_samples_us"]
"""Columns that no page reads, and that are most of what another process would be sent."""


@dataclass(frozen=True, eq=False)
class SweepCases:
    """One device's cases of one sweep."""

    sweep: str
    cases: pd.DataFrame
    """With the records that other sweeps lend (`_lent`), whose column ``sweep`` names these sweeps."""
    baseline: str | None
    prefix: str
    """Of the names of figures and tables."""
    older: int
    """Rows that are left out, being of older code, of another protocol or of another flush."""

    @property
    def device(self) -> str:
        """Name of the device."""
        return str(self.cases["device"].iloc[0])

    @property
    def own(self) -> pd.DataFrame:
        """The cases that were measured with this sweep."""
        return self.cases[self.cases["sweep"] == self.sweep]

    @property
    def searched(self) -> set[tuple[str, ...]]:
        """The keys of the cases whose plan a search chose: candidates are told apart by them alone."""
        cases = self.cases[self.cases["search"].notna()]
        return set(cases[list(OF_CASE)].itertuples(index=False, name=None))

    def without_samples(self) -> SweepCases:
        """Give all that a page is made of."""
        return replace(self, cases=self.cases.drop(columns=_SAMPLES))


def found_in(
    frame: pd.DataFrame, wanted: str | None, packaged: Mapping[str, ListedSweep | None], *, alone: bool
) -> list[SweepCases]:
    """Give the current cases of each device and sweep, with those that other sweeps lend.

    Parameters
    ----------
    frame : DataFrame
        As `spmark.report.records.load_records` gives it.
    wanted : str or None
        The baseline that was asked for.
    packaged : mapping of str to ListedSweep or None
        What is known of each sweep in ``frame``; None for a sweep that is not packaged.
    alone : bool
        Whether there is one sweep, whose figures and tables need no name of the sweep.
    """
    found: list[SweepCases] = []
    for device, rows in frame.groupby("device", sort=False):
        for name, part in rows.groupby("sweep"):
            now = current(part)
            prefix = "-".join(map(path_component, (str(device), *([] if alone else [str(name)]))))
            baseline, older = choose_baseline(now, wanted), len(part) - len(now)
            lent = _lent(rows, now, packaged[str(name)])
            if len(lent):
                now = pd.concat([now, lent]).sort_values("started_at", kind="stable", ignore_index=True)
                baseline = baseline or choose_baseline(lent, wanted)  # where all own cases were refused
            found.append(SweepCases(str(name), now, baseline, prefix, older))
    return found


def _lent(rows: pd.DataFrame, own: pd.DataFrame, listed: ListedSweep | None) -> pd.DataFrame:
    """Give other sweeps' records of the cases that a sweep lists and was not measured with, under its own labels.

    A case that several sweeps list is measured once. The records have the protocol and the flush of ``own``.
    """
    labels = listed.labels if listed else {}
    others = rows["case_id"].isin(labels.keys() - set(own["case_id"]))
    for alike in ("protocol_version", "flush"):
        others &= rows[alike] == own[alike].iloc[0]
    lent = current(rows[others])
    return lent.assign(label=lent["case_id"].map(labels))
