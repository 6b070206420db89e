"""What LiteForm chooses, and that every choice computes the right product on the host ring."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from problems import matrices, random_csr, run_checked

from spmark.datasets.sweep.model import Sweep
from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.liteform import plan as plan_module
from spmark.impls.liteform.compose import Choice, StoredAs, choose, estimated_blocks, fixed_form
from spmark.impls.liteform.cost import Weights, costs, count
from spmark.impls.liteform.features import Features
from spmark.impls.liteform.plan import LiteForm
from spmark.impls.liteform.predictor import SHIPPED, find
from spmark.impls.liteform.schedule import (
    CellSchedule,
    Gathering,
    ScheduleEntry,
    ScheduleTable,
    rule,
    schedule_for,
    table_for,
)
from spmark.impls.liteform.search import search
from spmark.impls.runtime.device import find as find_device
from spmark.impls.table import create

RNG = np.random.default_rng(4)
MATRIX = random_csr(90, 130, [*RNG.integers(0, 20, 88), 120, 97])
PREDICTOR = find(SHIPPED)


def blocked(share: float) -> Csr:
    """Give 128 x 128 of 32 x 32 blocks, a share of each filled."""
    dense = np.where(RNG.random((128, 128)) < share, RNG.uniform(0.5, 1, (128, 128)), 0)
    dense[:, 64:] = 0
    return Csr.checked(
        (128, 128),
        np.concatenate([[0], np.cumsum(np.count_nonzero(dense, 1))]),
        np.nonzero(dense)[1],
        dense[dense != 0],
    )


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("config", "dtype", "width"),
    [
        ({"format": "cell", "partitions": 3}, DType.FLOAT32, 36),
        ({"format": "cell", "partitions": 2, "search": "binary"}, DType.FLOAT16, 32),
        ({"format": "cell", "partitions": 1, "max_width": 8, "cost": "paper"}, DType.FLOAT32, 32),
        ({"format": "cell", "partitions": 1, "max_width": 8, "tail_in_last": True}, DType.FLOAT32, 32),
        ({"format": "cell", "partitions": 1, "max_width": 4, "order": "gathered"}, DType.FLOAT32, 32),
        ({"format": "cell", "partitions": 3, "order": "gathered"}, DType.FLOAT16, 32),
        ({"format": "cell", "partitions": 1, "max_width": 64, "thirds": True}, DType.FLOAT16, 32),
        ({"format": "csr"}, DType.FLOAT32, 32),
        ({"format": "csr"}, DType.FLOAT16, 7),
        ({"format": "bsr"}, DType.FLOAT16, 32),
        ({"format": "bsr"}, DType.FLOAT16, 7),
    ],
    ids=str,
)
def test_every_format_computes_the_product(config: dict[str, Any], dtype: DType, width: int) -> None:
    problem = Problem(Op.SPMM, MATRIX, width, dtype)
    plan = LiteForm(**config).build(problem, find_device("host-simt"))
    run_checked(plan, problem)
    assert plan.config["format"] == config["format"]
    assert plan.stored >= MATRIX.nnz
    assert plan.phases_s["features"] > 0
    if config["format"] == "cell":
        if dtype is DType.FLOAT32:  # float16 holds sums of shared rows as well
            assert 8 * plan.stored <= plan.device_bytes < 16 * plan.stored, "columns and values count once"
        assert plan.config["partitions"] == config["partitions"]
        assert plan.search is not None
        costs = {c.config["max_width"]: c.predicted for c in plan.search.seen}
        assert list(costs) == [1 << power for power in range(len(costs))]
        if config["partitions"] == 1:
            assert costs[plan.config["max_width"]] == plan.config["cost"]
        if config.get("max_width"):
            assert plan.config["max_width"] == config["max_width"]


def test_the_models_are_asked_and_fallbacks_give_a_reason() -> None:
    inside = Features(20_000, 20_000, 400_000, 20.0, 0, 3000, 60.0)
    asked = choose(inside, 128, PREDICTOR, StoredAs.AUTO, 0)
    assert asked.form is (StoredAs.CELL if PREDICTOR.pays(inside, 128) else StoredAs.CSR)
    assert choose(inside, 128, PREDICTOR, StoredAs.CELL, 0).partitions == PREDICTOR.partitions.predict(
        inside.partitions(128)
    )
    tiny = choose(Features.of(matrices()["one_by_one"]), 32, PREDICTOR, StoredAs.AUTO, 0)
    assert (tiny.form, tiny.partitions) == (StoredAs.CELL, 1)
    assert "outside of the training range" in tiny.fallback
    assert choose(inside, 128, PREDICTOR, StoredAs.CELL, 8) == Choice(StoredAs.CELL, 8)
    assert choose(inside, 128, PREDICTOR, StoredAs.CSR, 0) == Choice(StoredAs.CSR, 1)


@pytest.mark.parametrize("model", ["nvidia-h200-published", "published-v100"])
@pytest.mark.parametrize("sweep", ["liteform_fig6_speedup", "liteform_fig9_overhead_suitesparse"])
def test_as_published_no_table_of_a_gpu_is_asked(sweep: str, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = Sweep.load(sweep).implementations
    (config,) = (entry.config for entry in entries if entry.config.get("model") == model)
    monkeypatch.setattr(plan_module, "table_for", lambda gpu: table_for("nvidia-h200"))
    problem = Problem(Op.SPMM, MATRIX, 36)
    plan = create("liteform", config).build(problem, find_device("host-simt"))
    run_checked(plan, problem)
    assert (plan.config["model"], "thirds" in plan.config) == (model, False)
    assert plan.config["format"] in {"cell", "csr"}


def test_blocks_are_taken_where_they_are_smaller() -> None:
    full, thin = blocked(0.9), blocked(0.05)
    assert estimated_blocks(full) == 8
    assert fixed_form(full, DType.FLOAT16) is StoredAs.BSR
    assert fixed_form(thin, DType.FLOAT16) is StoredAs.CSR
    assert fixed_form(full, DType.FLOAT32) is StoredAs.CSR
    assert fixed_form(matrices()["no_nonzeros"], DType.FLOAT16) is StoredAs.CSR


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"format": "ell"}, "format out of"),
        ({"format": "direct"}, "format out of auto, cell, csr, bsr, found 'direct'"),
        ({"search": "random"}, "search out of"),
        ({"partitions": -1}, "partitions in"),
        ({"max_width": 24}, "bucket width out of"),
        ({"cost": "free"}, "cost out of"),
        ({"order": "random"}, "order out of"),
    ],
)
def test_illegal_tunables_are_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LiteForm(**config)


@pytest.mark.parametrize("width", [1, 3, 20, 33, 64, 130, 512])
@pytest.mark.parametrize("dtype", list(DType))
def test_schedules_fit_their_width(width: int, dtype: DType) -> None:
    chosen = schedule_for("a-gpu-without-a-table", width, dtype, nnz=1000, max_width=64)
    assert chosen == rule(width, dtype, 64)
    assert width % chosen.vector == 0
    assert chosen.vector * dtype.itemsize <= 16
    assert isinstance(chosen, CellSchedule)
    assert chosen.work == 64


def test_a_gpu_s_table_decides_cost_schedule_and_order(monkeypatch: pytest.MonkeyPatch) -> None:
    device = find_device("host-simt")
    # Free chains and dear added stores: no row is folded; gathered rows have weights that fold all of them.
    apart, folded = Weights(100.0, 0.0, 0.0, 0.0, 0.0), Weights(0.0, 0.0, 1e9, 1e9, 0.0)
    schedules = [CellSchedule(4, 8, work) for work in (16, 32)]
    entries = tuple(
        ScheduleEntry(dtype=DType.FLOAT32, width=32, gathered=way, nnz=1000, max_width=32, schedule=schedule)
        for way, schedule in zip((False, True), schedules, strict=True)
    )

    def plan_with(gathering: Gathering | None, **config: Any) -> dict[str, Any]:
        table = ScheduleTable(device=device.name, entries=entries, weights=apart, gathering=gathering)
        for module in ("plan", "schedule"):
            monkeypatch.setattr(f"spmark.impls.liteform.{module}.table_for", lambda _: table)
        return LiteForm(format="cell", partitions=1, **config).build(Problem(Op.SPMM, MATRIX, 32), device).config

    given = plan_with(None)
    assert (given["order"], given["max_width"], given["work"]) == ("given", 128, 16)
    together = plan_with(Gathering(32, 0, 10.0, folded))
    assert (together["order"], together["max_width"], together["work"]) == ("gathered", 1, 32)
    for gathering in (Gathering(64, 0, 10.0, folded), Gathering(1, 10**9, 10.0, folded), Gathering(1, 0, 0.0, folded)):
        assert plan_with(gathering)["order"] == "given"
    assert plan_with(Gathering(32, 0, 10.0, folded), order="given")["order"] == "given"
    paper = plan_with(None, cost="paper")
    assert paper["cost"] == search(costs(count(MATRIX, 1), 32), count(MATRIX, 1).widest).cost


def with_table(monkeypatch: pytest.MonkeyPatch, **facts: Any) -> None:
    table = ScheduleTable(device=find_device("host-simt").name, entries=(), **facts)
    for module in ("plan", "schedule"):
        monkeypatch.setattr(f"spmark.impls.liteform.{module}.table_for", lambda _: table)


def test_a_gpu_s_table_says_whether_buckets_have_thirds(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, device = Problem(Op.SPMM, MATRIX, 32), find_device("host-simt")
    cell = {"format": "cell", "partitions": 1, "max_width": 64}
    for thirds in (False, True):
        with_table(monkeypatch, thirds=thirds)
        assert LiteForm(**cell).build(problem, device).config.get("thirds", False) is thirds
        assert "thirds" not in LiteForm(**cell, cost="paper").build(problem, device).config
        assert "thirds" not in LiteForm(**cell, thirds=False).build(problem, device).config
        assert LiteForm(**cell, thirds=True).build(problem, device).config["thirds"]
