"""What a section says beside its figures and tables."""

from __future__ import annotations

import pandas as pd

from spmark.impls.core.record import Status
from spmark.report.page.facts import notices_of


def test_counts_of_notices_have_separators_of_thousands() -> None:
    rows = 2316
    derived = pd.DataFrame(
        {
            "status": [Status.OK.value] * 300 + [Status.TIMEOUT.value] * (rows - 300),
            "speedup_from": "record",
            "flags": "busy",
            "implementation": "gespmm",
            "implementation_version": "1",
        }
    )
    failed, lent, flagged, older = notices_of(derived, "cusparse", None, 1234)
    assert failed.startswith("2,016 of 2,316 cases have no result (2,016 timeout)")
    assert lent.startswith("2,316 speed-ups")
    assert flagged.startswith("2,316 of 2,316 cases ran")
    assert older.startswith("1,234 rows")
