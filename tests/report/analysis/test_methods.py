"""The file of methods: it fits what it names, and asks for a baseline only where the baseline has a meaning."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from spmark.impls.table import PLATFORMS
from spmark.report.analysis.methods import Methods, known_methods
from spmark.suite.plan.papers import packaged_papers


def test_baselines_name_platforms_that_exist() -> None:
    methods = known_methods()
    assert {one.target for one in methods.baselines.values()} <= {"", *PLATFORMS}
    assert list(methods.beside("cuda", "spmm")) == list(methods.baselines)
    for target, op in (("cuda", "sddmm"), ("spade_sim", "spmm"), ("cpu", "spmm")):
        assert set(methods.baselines) - set(methods.beside(target, op)) == {"rule_ck"}


def test_figures_are_the_papers_and_have_their_names() -> None:
    methods = known_methods()
    assert methods.subject in packaged_papers()
    numbers = [int(figure.name.split("_")[1].removeprefix("fig")) for figure in methods.figures]
    assert numbers == list(range(4, 13))
    assert methods.table == f"{methods.subject}_table2"


def test_an_unknown_method_is_refused() -> None:
    data = known_methods().model_dump()
    with pytest.raises(ValidationError, match="found nobody"):
        Methods.model_validate(data | {"subject": "nobody"})
