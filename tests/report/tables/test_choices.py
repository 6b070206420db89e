"""What a choice is worth among the plans that searches saw, by hand."""

from __future__ import annotations

import math

import pytest

from spmark.report.tables.results import choices


def test_a_choice_is_worth_what_the_best_other_takes_longer(seen):
    found = choices(seen).set_index(["choice", "chosen"])
    assert set(found.index.get_level_values("choice")) == {"formats"}
    mixed = found.loc[("formats", "mixed")]
    assert (mixed["cases"], mixed["matrices"]) == (2, 2)
    assert mixed["over_next_speedup"] == pytest.approx(math.sqrt(6 / 4.5 * 3))
    assert mixed["greatest_speedup"] == pytest.approx(3)
    assert found.loc[("formats", "other"), "over_next_speedup"] == pytest.approx(1.2)
