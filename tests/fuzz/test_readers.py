"""Every reader of files against mutated inputs, briefly: no crash, no foreign exception, no write outside.

``SPMARK_FUZZ_SECONDS=30`` runs each reader that long; ``python tests/fuzz`` runs longer and prints counts.
"""

from __future__ import annotations

import os

import pytest
from fuzz.harness import fuzz, targets

SECONDS = float(os.environ.get("SPMARK_FUZZ_SECONDS", "0"))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.full] * target.full) for name, target in targets().items()]
)
def test_a_reader_survives(name: str) -> None:
    tally = fuzz(name, seconds=SECONDS) if SECONDS else fuzz(name, inputs=targets()[name].brief)
    assert not tally.faults, "\n".join(str(fault) for fault in tally.faults[:5])
    assert tally.inputs > tally.accepted > 0
