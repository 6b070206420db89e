"""Published records hold what their searches find today: no record went through machine code of other sources."""

from __future__ import annotations

import pytest
from compat_facts import ROOT
from search_again import compare, main

pytestmark = pytest.mark.full

H200 = ROOT / "report" / "reference" / "h200"


@pytest.mark.parametrize(
    "sweep, only, every, cases",
    [
        ("stile_fig14_cost_model", "patterns/", 8, 1),
        ("stile_tile_order", "patterns/", 4, 2),
        ("stile_modes", "#2928e369", 5, 2),  # the network; the paper's mode searches otherwise than its records
        ("lo_spmm_fig6_reordering", "similar_", 9, 4),
    ],
)
def test_searches_of_published_records_are_found_again(sweep: str, only: str, every: int, cases: int) -> None:
    found = list(compare(H200 / sweep, every=every, only=only))
    assert len(found) >= cases
    for one in found:
        assert one.again, one.case_id
        assert one.same, (one.case_id, sorted(map(str, one.recorded ^ one.again))[:4])


def test_a_difference_ends_the_program_with_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    from spmark.impls.stile.search import Tiling

    asked = [str(H200 / "stile_tile_order"), "--only", "patterns/logsparse", "--every", "9"]
    assert main(asked) == 0
    facts = Tiling.facts.fget
    assert facts is not None
    monkeypatch.setattr(Tiling, "facts", property(lambda form: {**facts(form), "withdrawn": 26}))
    assert main(asked) == 1
    assert "DIFFERS" in capsys.readouterr().out
