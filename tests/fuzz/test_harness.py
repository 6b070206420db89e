"""The harness sees what it is there to see: each kind of fault, planted in a reader."""

from __future__ import annotations

from random import Random

import pytest
from fuzz.faulty import FAULTS
from fuzz.harness import fuzz
from fuzz.mutate import MUTATORS, mutated

KINDS = {name: kind for name, (_, kind) in FAULTS.items()} | {"command_that_writes": "trespass"}


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_a_fault_is_seen(name, kind):
    tally = fuzz(name, inputs=2, pattern="faulty.py")
    assert [(fault.number, fault.kind) for fault in tally.faults] == [(1, kind)]
    assert tally.inputs == 2


def test_a_target_that_refuses_everything():
    tally = fuzz("refuses_all", inputs=3, pattern="faulty.py")
    assert [(fault.number, fault.kind) for fault in tally.faults] == [(0, "good input")]


@pytest.mark.full
def test_inputs_go_on_after_a_death():
    """The child after it begins with what is good, as every child of `faulty` does."""
    tally = fuzz("segmentation", inputs=4, pattern="faulty.py")
    assert tally.inputs == 4
    assert [fault.number for fault in tally.faults] == [1, 3]


def test_a_number_names_an_input():
    seeds = [b"%%MatrixMarket 3 4 5\n1 2 0.5\n", b'{"a": [1, 2]}']
    first = [mutated(Random(f"x/0/{n}"), seeds) for n in range(300)]
    assert first == [mutated(Random(f"x/0/{n}"), seeds) for n in range(300)]
    assert len(set(first)) > 200


def test_mutators_take_an_empty_file():
    for mutator in MUTATORS:
        mutator(Random(0), bytearray())
