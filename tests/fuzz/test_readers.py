"""Every reader of files against mutated inputs, briefly: no crash, no foreign exception, no write outside.

``SPMARK_FUZZ_SECONDS=30`` runs each reader that long; ``python tests/fuzz`` runs longer and prints counts.
"""

from __future__ import annotations

import os

import pytest
from fuzz.harness import fuzz, targets

BRIEFLY = {
    "asv_import", "cache_entry", "candidates", "claims", "collected", "compare", "dgl", "manifest", "mtx",
    "mtx_tar_gz_content", "npz", "ogb", "operator", "plan_cache", "planetoid", "provenance", "published_table",
    "rank_model", "records", "report", "runs", "smtx", "snap", "spread_model", "sweep", "transfer_model_sealed",
}  # fmt: skip
"""One target of every kind of file. The others, each a child process that takes seconds to start, run with the rest."""
SECONDS = float(os.environ.get("SPMARK_FUZZ_SECONDS", "0"))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.full] * (name not in BRIEFLY)) for name in targets()]
)
def test_a_reader_survives(name: str) -> None:
    tally = fuzz(name, seconds=SECONDS) if SECONDS else fuzz(name, inputs=targets()[name].brief)
    assert not tally.faults, "\n".join(str(fault) for fault in tally.faults[:5])
    assert tally.inputs > tally.accepted > 0
