from __future__ import annotations

from collections import Counter

import pytest

from spmark.impls.table import IMPLEMENTATIONS
from spmark.suite.cluster import schedule
from spmark.suite.cluster.schedule import estimated_s, grouped, learned
from spmark.suite.plan.plan import Item


@pytest.fixture
def seconds(monkeypatch):
    """Let cases take what their time limit says."""
    monkeypatch.setattr(schedule, "estimated_s", lambda case: case.time_limit_s)


def items(fakes, *groups):
    """Give a problem for each group of seconds."""
    return [
        Item(fakes.but(fakes.case(f"m{at}", time_limit_s=seconds), config={"do": "sleep", "seconds": number}))
        for at, group in enumerate(groups)
        for number, seconds in enumerate(group)
    ]


def shape(groups):
    return [[item.spec.time_limit_s for item in group] for group in groups]


def test_cases_of_one_problem_stay_together_and_the_longest_group_goes_first(fakes, seconds):
    told = items(fakes, [1.0, 2.0], [9.0], [4.0, 4.0])
    assert shape(grouped(told, 2)) == [[9.0], [4.0, 4.0], [1.0, 2.0]]


def test_a_group_that_takes_long_is_split_in_its_order(fakes, seconds):
    told = items(fakes, [50.0, 30.0, 20.0, 100.0, 5.0])
    assert shape(grouped(told, 4)) == [[100.0], [50.0], [30.0, 20.0], [5.0]]
    many = items(fakes, *[[200.0] * 10] * 4)
    assert shape(grouped(many, 1)) == [[200.0] * 10] * 4, "a worker's share is so long that a part may be, too"


def test_every_case_is_in_one_group(fakes, seconds):
    told = items(fakes, *([float(at % 7 + 1) * 20] * (at % 5 + 1) for at in range(30)))
    for workers in (1, 8, 512):
        ids = Counter(id(item) for group in grouped(told, workers) for item in group)
        assert ids == Counter(map(id, told))


def test_more_flops_and_longer_searches_take_longer(fakes):
    narrow, wide = (fakes.case(width=width) for width in (32, 512))
    assert estimated_s(narrow) < estimated_s(wide)
    searched, given = (fakes.case(implementation=name) for name in ("lo_spmm", "direct"))
    assert estimated_s(searched) > 5 * estimated_s(given)
    exponent, table = learned()
    assert 0 < exponent < 1
    assert table.keys() <= IMPLEMENTATIONS.keys()
