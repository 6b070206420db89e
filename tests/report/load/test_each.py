"""Tasks side by side: what several of them need is pickled once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from spmark.report.load.each import each, shared


class Counted:
    """Counts how often values like it are pickled."""

    pickled = 0

    def __init__(self, value: int) -> None:
        self.value = value

    def __reduce__(self) -> Any:
        Counted.pickled += 1
        return Counted, (self.value,)


def of(give: Any, place: int) -> int:
    return give().value + place


def test_results_come_in_order_whatever_begins_first() -> None:
    tasks = [partial(int, place) for place in range(5)]
    with ThreadPoolExecutor(2) as pool:
        assert list(each(tasks, [3, 1, 2, 5, 4], pool)) == list(each(tasks, [1] * 5, None)) == [0, 1, 2, 3, 4]


def test_a_value_that_all_tasks_need_is_pickled_once() -> None:
    value = Counted(7)
    assert shared(value, None)() is value
    assert Counted.pickled == 0
    with ThreadPoolExecutor(2) as pool:
        give = shared(value, pool)
        assert list(each([partial(of, give, place) for place in range(3)], [1] * 3, pool)) == [7, 8, 9]
    assert Counted.pickled == 1
