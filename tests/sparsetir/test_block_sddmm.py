"""SDDMM of `sparsetir_bsr`: what its space is, what is pinned and what is refused."""

from __future__ import annotations

import pytest
from problems import matrices

from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.kernels.block_sddmm import SDDMM_OVER_BLOCKS
from spmark.impls.runtime.device import find
from spmark.impls.sparsetir.blocks import SparseTirBsr
from spmark.impls.tuning.tune import space_of


def problem(width: int = 32, dtype: DType = DType.FLOAT16) -> Problem:
    return Problem(Op.SDDMM, matrices()["empty_rows"], width, dtype)


def test_the_space_keeps_what_is_pinned_and_has_no_kernel_that_is_not_compiled() -> None:
    assert len(list(space_of(SDDMM_OVER_BLOCKS, problem()).configs())) == 20
    pinned = list(space_of(SDDMM_OVER_BLOCKS, problem(), {"block": 32, "units": 3}).configs())
    assert {(config["block"], config["units"]) for config in pinned} == {(32, 3)}
    assert {config["threads"] for config in space_of(SDDMM_OVER_BLOCKS, problem(33)).configs()} == {128}


@pytest.mark.parametrize("size", [0, 32])
def test_pinned_config_is_what_is_built(size: int) -> None:
    plan = SparseTirBsr(block_rows=size).build(problem(), find("host-simt"))
    assert plan.config == {"block": size or 16, "units": 4, "threads": 128}
    assert plan.deterministic
    assert plan.search is None
    assert {"compile", "convert", "upload"} <= set(plan.phases_s)


@pytest.mark.parametrize(
    ("rows", "cols", "fits"), [(0, 0, True), (16, 0, True), (32, 32, True), (64, 0, False), (64, 32, False)]
)
def test_blocks_that_are_not_square_or_too_large_are_refused(rows: int, cols: int, fits: bool) -> None:
    implementation = SparseTirBsr(block_rows=rows, block_cols=cols)
    reason = implementation.unsupported(problem(), find("host-simt"))
    assert (reason is None) == fits, reason
    if not fits:
        assert f"square blocks of 16 or 32 for SDDMM, found {rows} x {cols}" in str(reason)
