"""The stores of every implementation: each non-zero is in one, and they hold what a plan holds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from problems import matrices, random_csr

from spmark.impls.core.errors import BuildError, UnsupportedError
from spmark.impls.core.interfaces import Implementation
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.core.stores import Held, StoreKind, Stores
from spmark.impls.formats.stores import stores_of
from spmark.impls.runtime.device import find, shipped
from spmark.impls.table import IMPLEMENTATIONS, create, forecasters, reach_of

H200 = shipped("nvidia-h200")
ON_HOST = {"cpu", "host-simt"}
HERE = [
    (name, op, dtype, reach_of(name).devices)
    for name in IMPLEMENTATIONS
    if name != "dgl" and ON_HOST & reach_of(name).devices
    for op in sorted(reach_of(name).ops)
    for dtype in DType
]
"""Implementations with plans on any machine: operator, dtype and kinds of devices of each."""
PINNED = [
    ("sparsetir", DType.FLOAT32, {"c": 3, "k": 3}),
    ("sparsetir", DType.FLOAT16, {"c": 2, "k": 6}),
    ("sparsetir_srbcrs", DType.FLOAT16, {"t": 16}),
    ("liteform", DType.FLOAT32, {"format": "cell", "partitions": 5, "thirds": True}),
    ("liteform", DType.FLOAT16, {"format": "bsr"}),
    ("liteform", DType.FLOAT32, {"format": "csr"}),
    ("stile", DType.FLOAT16, {"formats": "blocks", "calibration": "nvidia-h200"}),
    ("stile", DType.FLOAT16, {"calibration": "nvidia-h200"}),
    ("sparsetir", DType.FLOAT32, {"mode": "paper"}),
    ("stile", DType.FLOAT16, {"keep_mixture": True, "calibration": "nvidia-h200"}),
    ("stile", DType.FLOAT32, {"mode": "paper", "calibration": "nvidia-h200"}),
    ("taco_cpu", DType.FLOAT32, {"isplit": 4, "ksplit": 8, "formats": "CUUU", "order": "i1 k1 i0 k0 j1 j0"}),
]
"""Configs whose plans have several stores, or padding."""


def check(stores: Stores, nnz: int) -> None:
    """Hold what is true of the stores of any plan."""
    assert stores.nnz == nnz
    assert stores.store_of.shape == (nnz,)
    assert np.bincount(stores.store_of, minlength=len(stores.parts)).tolist() == [part.nnz for part in stores.parts]
    assert all(part.stored >= part.nnz for part in stores.parts)
    assert stores.padding == (stores.stored / nnz - 1 if nnz else 0)


def check_plan(how: Implementation, problem: Problem, kinds: Iterable[str]) -> Stores | None:
    """Build the plan of a problem, where the implementation has one, and hold its stores against it."""
    device = find(min(ON_HOST & set(kinds)))
    if how.unsupported(problem, device):
        return None
    plan = how.build(problem, device)
    stores = stores_of(how, problem, device, plan.config)
    check(stores, problem.matrix.nnz)
    assert stores.stored == plan.stored
    return stores


@pytest.mark.one_in(7)
@pytest.mark.parametrize(("name", "op", "dtype", "kinds"), HERE)
def test_stores_are_those_of_the_plan(name, op, dtype, kinds):
    for matrix in ("hub", "no_nonzeros", "fully_dense"):
        check_plan(create(name), Problem(Op(op), matrices()[matrix], 32, dtype), kinds)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("name", "dtype", "config"), PINNED)
def test_stores_of_pinned_configs(name, dtype, config):
    clustered = random_csr(64, 96, [40] * 16 + [3] * 40 + [0, 90, 1, 2, 50, 20, 30, 7])
    how = create(name, config)
    stores = check_plan(how, Problem(Op.SPMM, clustered, 32, dtype), map(str, how.devices))
    assert stores is not None
    assert len(stores.parts) > 1 or stores.padding > 0 or config.get("format") == "csr"


@pytest.mark.parametrize("name", ["triton_blocksparse"])
def test_blocks_of_plans_that_need_a_gpu(name):
    problem = Problem(Op.SPMM, matrices()["hub"], 32, DType.FLOAT16)
    stores = stores_of(create(name), problem, H200, {"block": 16})
    check(stores, problem.matrix.nnz)
    assert (stores.parts[0].kind, stores.parts[0].name) == (StoreKind.BLOCK, "blocks of 16 x 16")
    lengths = [
        len(np.unique(problem.matrix.indices[slice(*problem.matrix.indptr[[r, min(r + 16, 40)]])] // 16))
        for r in (0, 16, 32)
    ]
    assert stores.stored == 256 * sum(lengths)


@pytest.mark.parametrize("dtype", DType)
@pytest.mark.parametrize(("name", "op"), [*((name, Op.SPMM) for name in forecasters()), ("stile", Op.SDDMM)])
def test_a_forecast_needs_no_device(name, op, dtype):
    how: Any = create(name)
    problem = Problem(op, random_csr(200, 300, [60] * 32 + [4] * 160 + [0] * 8), 64, dtype)
    if name == "lo_spmm" and dtype.narrow:
        assert "expected float32" in (how.unsupported(problem, H200) or "")
        return
    found = how.forecast(problem, H200)
    check(stores_of(how, problem, H200, found.config), problem.matrix.nnz)  # a config like any other
    assert found.by
    fixed = found.config.get("format", "cell") != "cell" or "reads" in found.config
    assert (found.predicted_s is None) == (name == "sparsetir" or fixed)


def test_the_rule_has_no_answer_for_sddmm():
    problem = Problem(Op.SDDMM, matrices()["wide"], 32)
    with pytest.raises(UnsupportedError, match="expected spmm, for which the paper has a rule, found sddmm"):
        how: Any = create("sparsetir")
        how.forecast(problem, H200)


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("sparsetir", {}, "expected c in the config that a plan chose, found nothing: record the case anew"),
        ("sparsetir", {"c": 10**9, "max_width": 8}, "expected c of 1 to 700 columns, found 1000000000"),
        ("liteform", {"format": "cell", "max_widths": "32x99999999999"}, "expected widths of buckets such as"),
        ("stile", {"formats": "blocks", "part": 3}, "expected the search to find the recorded tiles"),
        ("sparsetir_bsr", {"algorithm": "x"}, "expected block_rows in the config that a plan chose, found algorithm"),
    ],
)
def test_a_config_of_no_plan_is_refused(name, config, message):
    problem = Problem(Op.SPMM, matrices()["wide"], 32)
    with pytest.raises(BuildError, match=message):
        stores_of(create(name), problem, H200, config)


@pytest.mark.parametrize(("places", "message"), [([[0, 1]], "1 in none and 0 twice"),
                                                 ([[0, 1, 2], [2]], "0 in none and 1 twice")])  # fmt: skip
def test_a_non_zero_has_one_store(places, message):
    held = [Held(StoreKind.ROW, str(n), 3, np.array(at)) for n, at in enumerate(places)]
    with pytest.raises(BuildError, match=f"each of 3 non-zeros in one store, found {message}"):
        Stores.of(3, held)
