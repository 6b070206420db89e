"""What is none of a few known values is refused in one sentence."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from spmark.impls.core.errors import check_choices, near, none_of


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
