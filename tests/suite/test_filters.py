from __future__ import annotations

import pytest
from suite_fakes import case

from spmark.impls.core.errors import SweepError
from spmark.suite.plan.plan import select

CASES = [case(name, width=width) for name in ("cora", "pubmed", "ppi") for width in (32, 128)]


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        ([], ["cora32", "cora128", "pubmed32", "pubmed128", "ppi32", "ppi128"]),
        (["matrix=cora"], ["cora32", "cora128"]),
        (["patterns/cora/"], ["cora32", "cora128"]),
        (["matrix=p*", "width=128"], ["pubmed128", "ppi128"]),
        (["matrix=cora,ppi", "width=32"], ["cora32", "ppi32"]),
        (["width=3"], None),
        (["J128"], ["cora128", "pubmed128", "ppi128"]),
        (["spmm/*/J32/*"], ["cora32", "pubmed32", "ppi32"]),
        (["scaled=false", "op=spmm", "dtype=float32", "cora/J3"], ["cora32"]),
        (["implementation=fake", "label=fake", "source=patterns", "cora/J3"], ["cora32"]),
        (["op=sddmm"], None),
        (["citeseer"], None),
    ],
)
def test_filters_narrow(only, expected):
    if expected is None:
        with pytest.raises(SweepError, match=r"found none among 6 such as spmm/patterns/cora/J32"):
            select(CASES, only)
    else:
        assert [f"{kept.matrix.name}{kept.width}" for kept in select(CASES, only)] == expected


def test_an_unknown_key_is_named_with_its_neighbour():
    with pytest.raises(SweepError, match=r"found 'widht' \(did you mean width\?\)"):
        select(CASES, ["widht=32"])
