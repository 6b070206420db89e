"""Every reader of files against mutated inputs: no crash, no foreign exception, no write outside.

Here each reader meets its good inputs and what half a second leaves time for; ``python tests/fuzz`` (`make fuzz`) runs
longer and prints counts.
"""

from __future__ import annotations

import pytest
from fuzz.harness import fuzz, targets

SECONDS = 0.5


@pytest.mark.full
@pytest.mark.parametrize("name", targets())
def test_a_reader_survives(name: str) -> None:
    tally = fuzz(name, seconds=SECONDS)
    assert not tally.faults, "\n".join(str(fault) for fault in tally.faults[:5])
    assert tally.accepted > 0
