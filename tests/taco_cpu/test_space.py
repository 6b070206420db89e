"""The space of loop nests: legal orders by hand, reasons of refusal, what other platforms share with it."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from spmark.impls.core.problem import Op
from spmark.impls.taco_cpu.space import (
    CSR,
    LOOPS,
    common,
    digest_of,
    nest_of,
    space_of,
    why_illegal,
)
from spmark.impls.tuning.platform import CommonLoops

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


@pytest.mark.parametrize("op", Op)
def test_short_vectors_keep_j_together(op: Op) -> None:
    orders = legal_orders(op, {**SPLIT, "jsplit": 4})
    assert len(orders) == 6
    assert all(order.endswith(" j1 j0") for order in orders)


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


@pytest.mark.parametrize("op", Op)
def test_rules_ask_of_splits_only_what_the_digest_covers(op: Op) -> None:
    space = space_of(op)
    for config in space.sample(5, 200):
        kind = {"isplit": min(config["isplit"], 2), "ksplit": min(config["ksplit"], 2), "chunk": 1}
        kind["jsplit"] = next(split for split in (8, 2, 1) if config["jsplit"] >= split)
        assert why_illegal(op, {**config, **kind}) is None


def test_the_digest_is_the_same_in_every_process_and_version() -> None:
    assert {op: digest_of(op) for op in Op} == {Op.SPMM: "4e43bfaf5355cfd0", Op.SDDMM: "a09504ad6b190d7e"}


def test_a_nest_leaves_out_loops_of_one_iteration() -> None:
    csr = nest_of(Op.SPMM, CSR)
    assert csr.loops == ("i1", "k1", "j1")
    assert csr.levels == ("i1", "k1")
    assert csr.compressed == {"k1"}
    assert csr.name == "spmm_i1u_k1c_j1"
    full = nest_of(Op.SDDMM, {**SPLIT, "order": "j1 k1 i1 k0 i0 j0", "formats": "UCCU"})
    assert full.levels == ("k1", "i1", "k0", "i0")
    assert full.compressed == {"i0", "k1"}
    assert full.name == "sddmm_j1_k1c_i1u_k0u_i0c_j0"


def test_threads_share_rows_in_spmm_and_the_outer_loop_over_a_in_sddmm() -> None:
    config = {**SPLIT, "order": "k1 i1 i0 k0 j1 j0"}
    assert nest_of(Op.SPMM, config).parallel == "i1"
    assert nest_of(Op.SDDMM, config).parallel == "k1"
    assert nest_of(Op.SDDMM, SPLIT).parallel == "i1"


def test_what_platforms_have_in_common() -> None:
    config = {**SPLIT, "order": "i1 k1 j1 i0 k0 j0"}
    assert common(config) == CommonLoops((4, 8, 16), ("i1", "j1", "k1", "i2", "j2", "k2"))
