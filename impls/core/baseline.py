"""What speed-ups are over: the rule by which sweeps, commands and reports choose a baseline, in one place.

A sweep's file may name another baseline for a kind of device, and ``--baseline`` another one for a report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

BASELINES: Mapping[str, str] = {"cuda": "cusparse_best", "cpu": "scipy_cpu"}
"""The default baseline of speed-ups, by the kind of device; a kind that is missing has none."""
PAID_BACK: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "cuda": ("cusparse", {"preprocess": True}),
    "cpu": ("scipy_cpu", {}),
}
"""What building must pay back against, by the kind of device: an implementation that searches nothing, with its
config."""


def chosen_baseline(named: Iterable[str], measured: Collection[str], wanted: str | None = None) -> str | None:
    """Choose the baseline of records.

    Parameters
    ----------
    named : iterable of str
        The baseline that each record was measured beside; empty where a record has none.
    measured : collection of str
        Labels of the records, and implementations that were measured without a config.
    wanted : str, optional
        What was asked for.

    Returns
    -------
    str or None
        ``wanted`` where it was measured or is named; else the one that most records name (the first by name of
        several); None where no record names any.
    """
    counts = Counter(name for name in named if name)
    if wanted and (wanted in counts or wanted in measured):
        return wanted
    return min(counts, key=lambda name: (-counts[name], name), default=None)
