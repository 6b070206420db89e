"""What regression tracking asks and is answered keeps its keys and types: commits of all ages answer one asker."""

from __future__ import annotations

from typing import Any

import pytest
from compat_facts import QUESTIONS, read, track_shapes

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.suite.asv import track as tracking

FROZEN = read("track.json")


@pytest.fixture(scope="module")
def today() -> Any:
    spec = DeviceSpec(
        name="test-cpu", kind=DeviceKind.CPU, arch="x86_64", num_sms=1, l2_bytes=1 << 20, memory_bytes=1 << 30,
        copy_bytes_per_s=0, read_bytes_per_s=0, fma_flops_per_s=0,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracking, "find", lambda name: spec)
        patch.setattr(tracking, "calibrated", lambda found: found)
        yield track_shapes()


def kept(old: Any, new: Any) -> bool:
    """Say whether what an old asker reads is there; an answer may say more."""
    if isinstance(old, dict):
        return isinstance(new, dict) and all(key in new and kept(one, new[key]) for key, one in old.items())
    return bool(old == new)


@pytest.mark.full
@pytest.mark.parametrize("name", FROZEN["answers"])
def test_answers_have_the_keys_and_types_of_old(name: str, today: Any) -> None:
    assert kept(FROZEN["answers"][name], today[name]), today[name]


def test_every_question_is_answered_as_it_was_frozen(today: Any) -> None:
    assert FROZEN["questions"] == QUESTIONS
    assert FROZEN["answers"].keys() == QUESTIONS.keys()
