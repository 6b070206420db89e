"""What is made of a frame is kept inside of a block, and by the frame's identity."""

from __future__ import annotations

import pandas as pd
import pytest

from spmark.report.derive.remember import remembered, remembering


@pytest.fixture
def asked():
    """Give a function that is remembered, and the list of what it was asked for."""
    calls = []

    @remembered
    def total(frame: pd.DataFrame, by: list[str] | tuple[str, ...] = (), *, less: float = 0.0) -> float:
        calls.append((frame, by, less))
        return float(frame["x"].sum()) - less

    return total, calls


def test_outside_of_a_block_nothing_is_kept(asked):
    total, calls = asked
    frame = pd.DataFrame({"x": [1.0, 2.0]})
    assert total(frame) == total(frame) == 3.0
    assert len(calls) == 2


def test_inside_of_a_block_each_frame_and_argument_is_asked_once(asked):
    total, calls = asked
    frame = pd.DataFrame({"x": [1.0, 2.0]})
    with remembering():
        for _ in range(2):
            assert total(frame, ["a"]) == total(frame, ("a",)) == 3.0
            assert total(frame, less=1.0) == 2.0
            assert total(frame.assign(x=5.0)) == 10.0
        assert len(calls) == 4
    total(frame, ["a"])
    assert len(calls) == 5


def test_inner_blocks_share_what_the_outermost_keeps(asked):
    total, calls = asked
    frame = pd.DataFrame({"x": [1.0]})
    with remembering():
        with remembering():
            total(frame)
        total(frame)
    assert len(calls) == 1


def test_a_frame_that_is_gone_is_not_taken_for_a_new_one(asked):
    total, _ = asked
    with remembering():
        assert [total(pd.DataFrame({"x": [float(n)]})) for n in range(50)] == [float(n) for n in range(50)]
