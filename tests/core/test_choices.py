"""What is none of a few known values is refused in one sentence."""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass
from typing import Any

import pytest

from spmark.impls.core.choices import check_choices, check_type, near, none_of


def test_the_sentence_lists_what_is_known_and_hints_at_what_is_near() -> None:
    assert none_of("a source", "snp", ("snap", "ogb")) == (
        "expected a source out of snap, ogb, found 'snp' (did you mean snap?)"
    )
    assert none_of("depth", 48, (32, 480)) == "expected depth out of 32, 480, found 48"
    assert not near("nothing like it", ("snap", "ogb"))
    assert not near("gpu", ("cpu", "cuda")), "another first letter is another word"
    assert not near("nvidia-a100", ("nvidia-h200",)), "another number is another thing"
    assert near("Nvidia_h200", ("nvidia-h200",)) == " (did you mean nvidia-h200?)"


@dataclass(frozen=True)
class Config:
    order: object = "csr"
    lanes: object = 8


def test_every_named_tunable_is_checked() -> None:
    known = {"order": ("csr", "tiles"), "lanes": range(8, 33, 8)}
    check_choices(Config(), **known)
    for wrong, words in ((Config(order="tile"), "order out of csr, tiles"), (Config(lanes=9), "lanes out of 8, 16")):
        with pytest.raises(ValueError, match=words):
            check_choices(wrong, **known)
    with pytest.raises(ValueError, match=r"found \['csr'\]"):
        check_choices(Config(order=["csr"]), **known)


@pytest.mark.parametrize(
    ("annotation", "fitting", "other"),
    [
        ("int", [3, 10**30], [3.0, True, "3", None]),
        (int, [3], [True, "3"]),
        ("float", [3, 0.5, float("inf")], [True, "1e9"]),
        ("bool|None", [True, None], [0, "no"]),
        (int | str, [3, "auto"], [True, None, 0.5]),
        ("bool | int", [True, 3], ["3"]),
    ],
)
def test_a_value_has_the_type_of_its_field(annotation: Any, fitting: list[Any], other: list[Any]) -> None:
    tunable = make_dataclass("Kind", [("depth", annotation, field(default=8))]).__dataclass_fields__["depth"]
    for value in fitting:
        check_type(tunable, value)
    for value in other:
        with pytest.raises(TypeError, match=r"^depth must be "):
            check_type(tunable, value)


@pytest.mark.parametrize("annotation", ["tuple[int, ...]", "Literal[3]", list[int], Any, "Order"])
def test_a_type_that_only_the_class_knows_is_left_to_it(annotation: Any) -> None:
    tunable = make_dataclass("Kind", [("depth", annotation)]).__dataclass_fields__["depth"]
    for value in ([1], "x", 3):
        check_type(tunable, value)
