"""The space of loop nests: legal orders by hand, reasons of refusal, what other platforms share with it."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from spmark.impls.core.problem import Op
from spmark.impls.taco_cpu.space import (
    CSR,
    LOOPS,
    digest_of,
    nest_of,
    space_of,
    why_illegal,
)

SPLIT: dict[str, Any] = {**CSR, "isplit": 4, "ksplit": 8, "jsplit": 16}


def legal_orders(op: Op, config: dict[str, Any]) -> set[str]:
    orders = map(" ".join, permutations(LOOPS))
    return {order for order in orders if why_illegal(op, {**config, "order": order}) is None}


def test_orders_are_those_of_a_filter_written_out() -> None:
    for op in Op:
        expected = set()
        for loops in permutations(LOOPS):
            i1, i0, k1, k0, j1, j0 = (loops.index(loop) for loop in LOOPS)
            if i1 < i0 and k1 < k0 and j1 < j0 and j0 == 5 and (op is Op.SDDMM or j1 > i1):
                expected.add(" ".join(loops))
        assert legal_orders(op, SPLIT) == expected
        assert len(expected) == {Op.SPMM: 20, Op.SDDMM: 30}[op]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"isplit": 3}, "expected isplit as a power of two of at most 65,536, found 3"),
        ({"chunk": 0}, "expected chunk as a power of two"),
        ({"jsplit": "8"}, "expected jsplit as a power of two of at most 65,536, found '8'"),
        ({"order": ["i1"]}, "expected order to name each of i1, i0, k1, k0, j1, j0 once, found ['i1']"),
        ({"formats": None}, "expected formats of a letter C or U for each of i1, i0, k1, k0, found None"),
        ({"order": "i1 i0 k1 k0 j1"}, "expected order to name each of i1, i0, k1, k0, j1, j0 once, found 'i1 i0"),
        ({"formats": "UUC"}, "expected formats of a letter C or U for each of i1, i0, k1, k0, found 'UUC'"),
        ({"formats": "UUXU"}, "found 'UUXU'"),
        ({"order": "i0 i1 k1 k0 j1 j0"}, "expected i1 outside of i0, found i0 i1 k1 k0 j1 j0"),
        ({"order": "i1 i0 k0 k1 j1 j0"}, "expected k1 outside of k0"),
        ({"order": "i1 i0 k1 j1 j0 k0"}, "expected j0 innermost"),
        ({"order": "i1 i0 j1 k1 k0 j0", "jsplit": 4}, "expected j1 directly outside of j0 where jsplit is below 8"),
        ({"order": "i1 k1 i0 k0 j1 j0", "isplit": 1}, "expected i0 directly inside of i1 where isplit is 1"),
        ({"formats": "UUCC", "ksplit": 1}, "expected k0 uncompressed where ksplit is 1, found formats UUCC"),
    ],
)
def test_what_is_illegal_is_refused_with_the_reason(changes: dict[str, Any], reason: str) -> None:
    for op in Op:
        assert reason in str(why_illegal(op, {**SPLIT, **changes}))


def test_each_operator_has_rules_of_its_own() -> None:
    columns_first = {**SPLIT, "order": "j1 i1 i0 k1 k0 j0"}
    assert why_illegal(Op.SPMM, columns_first) == "spmm: expected i1 outside of j1, found j1 i1 i0 k1 k0 j0"
    assert why_illegal(Op.SDDMM, columns_first) is None
    dense = {**SPLIT, "formats": "UUUU"}
    assert why_illegal(Op.SPMM, dense) is None
    assert why_illegal(Op.SDDMM, dense) == "sddmm: expected a compressed level, found formats UUUU: a dense matrix"


@pytest.mark.parametrize("op", Op)
def test_a_sample_holds_legal_configs_that_are_programs_of_their_own(op: Op) -> None:
    drawn = space_of(op).sample(3, 300)
    assert all(why_illegal(op, config) is None for config in drawn)
    assert all(config.keys() == CSR.keys() for config in drawn)
    runs = {(nest_of(op, c), c["isplit"], c["ksplit"], c["jsplit"], c["chunk"]) for c in drawn}
    assert len(runs) == len(drawn)
    assert why_illegal(op, CSR) is None


def test_the_digest_is_the_same_in_every_process_and_version() -> None:
    assert {op: digest_of(op) for op in Op} == {Op.SPMM: "4e43bfaf5355cfd0", Op.SDDMM: "a09504ad6b190d7e"}
