"""What the plan refuses and pins, and every instance of its kernel on the host."""

from __future__ import annotations

from typing import Any

import pytest
from problems import random_csr, run_checked
from tables import DTYPES, TableTarget, every_instance, table_target

from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.formats.hyb import HybFormat
from spmark.impls.kernels import hyb_spmm
from spmark.impls.kernels.ell_buckets import NEVER, SPMM_ELL_BUCKETS, EllBucketsPlan
from spmark.impls.kernels.hyb_spmm import HYB_SPMM
from spmark.impls.runtime.device import find
from spmark.impls.runtime.template import Instance
from spmark.impls.sparsetir.plan import SparseTir
from spmark.impls.sparsetir.search import PAPERS_HYB
from spmark.impls.tuning.tune import space_of

MATRIX = random_csr(29, 41, [0, 1, 2, 3, 41, 7, 0, 12, 30, 5, 8, 9] * 2 + [1, 0, 9, 16, 17])
target = table_target(SPMM_ELL_BUCKETS)


@pytest.mark.one_in(12)
@pytest.mark.parametrize("form", [(1, 4), (3, 64), (1, 64)], ids=str)
@every_instance(SPMM_ELL_BUCKETS)
def test_every_instance(instance: Instance, form: tuple[int, int], target: TableTarget) -> None:
    values = instance.values
    tile = {name: int(values[name]) for name in ("vector", "vectors", "lanes")}
    width = tile["vector"] * (tile["vectors"] * tile["lanes"] + 1)
    problem = Problem(Op.SPMM, MATRIX, width, DTYPES[str(values["T"])])
    held = HybFormat.from_csr(MATRIX, *form, thirds=True)
    for by_row, spread, together in ((False, NEVER, 8), (True, 16, 64), (False, NEVER, NEVER)):
        schedule = {"work": 16, "by_row": by_row, "spread": spread, "together": together}
        plan = EllBucketsPlan(problem, target, held, {}, **tile, **schedule)
        run_checked(plan, problem)


def test_pinned_config_is_what_is_built() -> None:
    plan = SparseTir(c=2, k=3).build(Problem(Op.SPMM, MATRIX, 32), find("host-simt"))
    assert (plan.config["c"], plan.config["max_width"]) == (2, 8)
    assert not plan.deterministic


@pytest.mark.parametrize(("thirds", "width"), [({}, 32), ({"thirds": True}, 24)])
def test_thirds_are_named_where_there_are_any(thirds: dict[str, bool], width: int, target: TableTarget) -> None:
    problem = Problem(Op.SPMM, random_csr(30, 60, [20] * 30), 32)
    config = {"c": 1, "max_width": 32, "vector": 4, "lanes": 8, "work": 32}
    plan = HYB_SPMM.opened(problem, target)({**config, **thirds})
    assert plan.config.get("thirds") == thirds.get("thirds")
    assert plan.stored == 30 * width
    run_checked(plan, problem)


@pytest.mark.parametrize(("c", "k"), [(-1, 3), (1, 21), (1, -2)])
def test_illegal_tunables_are_refused(c: int, k: int) -> None:
    with pytest.raises(ValueError, match=r"expected [ck] of"):
        SparseTir(c=c, k=k)


def test_plans_of_one_format_share_it_and_each_tells_what_it_takes_alone(target: TableTarget) -> None:
    problem = Problem(Op.SPMM, MATRIX, 32)
    build = HYB_SPMM.opened(problem, target)
    form = {"c": 2, "max_width": 8, "order": "near"}
    first, second = (build({**form, "vector": 4, "lanes": 8, "work": work}) for work in (16, 32))
    other = build({**form, "max_width": 16, "vector": 4, "lanes": 8, "work": 16})
    assert all(a is b for a, b in zip(first.arrays, second.arrays, strict=True))
    assert not any(a is b for a, b in zip(first.arrays, other.arrays, strict=True))
    for plan in (first, second, other):
        run_checked(plan, problem)
        assert {"compile", "upload", "convert"} <= plan.phases_s.keys()
    assert second.phases_s["convert"] > 0.5 * first.phases_s["convert"], "the shared conversion is told again"
    assert first.config == {**form, "vector": 4, "vectors": 1, "lanes": 8, "work": 16, "threads": 128} | {
        "spread": NEVER,
        "together": NEVER,
    }


@pytest.mark.parametrize(("small", "laid_out"), [(MATRIX.nnz, 20), (0, 21)])
def test_the_last_layouts_are_kept(
    target: TableTarget, monkeypatch: pytest.MonkeyPatch, small: int, laid_out: int
) -> None:
    made: list[Any] = []
    lay_out = hyb_spmm.lay_out
    monkeypatch.setattr(hyb_spmm, "lay_out", lambda *given: made.append(given) or lay_out(*given))
    monkeypatch.setattr(hyb_spmm, "_SMALL", small)
    problem = Problem(Op.SPMM, MATRIX, 32)
    build, tile = HYB_SPMM.opened(problem, target), {"vector": 4, "lanes": 8, "work": 16}
    forms = [{"c": c, "max_width": 8, "order": order} for c in range(1, 11) for order in ("near", "row")]
    plans = [build({**form, **tile}) for form in (*forms, forms[-4], forms[0])]
    run_checked(plans[-2], problem)
    assert plans[-2].phases_s["convert"] > 0.2 * plans[-6].phases_s["convert"], "the layout that was kept is told again"
    assert len(made) == laid_out + 1, "the first one made room for others"


@pytest.mark.full
@pytest.mark.parametrize("dtype", list(DType))
@pytest.mark.parametrize("width", [1, 33, 64])
def test_the_papers_configs_are_built_as_published(width: int, dtype: DType, target: TableTarget) -> None:
    problem = Problem(Op.SPMM, MATRIX, width, dtype)
    plan = SparseTir(mode="paper", c=2).build(problem, find("host-simt"))
    run_checked(plan, problem)
    held = HybFormat.from_csr(MATRIX, 2, 16, tail_in_last=True)
    assert plan.stored == held.stored > HybFormat.from_csr(MATRIX, 2, 16).stored
    assert (plan.config["max_width"], plan.config["tail_in_last"], plan.config["work"]) == (16, True, 16)
    build = PAPERS_HYB.opened(problem, target)
    for config in space_of(PAPERS_HYB, problem).configs():
        run_checked(build(config), problem)


@pytest.mark.parametrize("width", [1, 32, 70])
def test_the_papers_sddmm_is_built_as_published(width: int) -> None:
    problem = Problem(Op.SDDMM, MATRIX, width)
    plan = SparseTir(mode="paper").build(problem, find("host-simt"))
    run_checked(plan, problem)
    assert plan.config == {"vector": 1, "lanes": 8, "threads": 8, "batch": 1}


def test_the_papers_mode_refuses_what_the_paper_lacks() -> None:
    with pytest.raises(ValueError, match="expected mode out of own, paper"):
        SparseTir(mode="code")
    wide = Problem(Op.SPMM, MATRIX, 32 * 65535 + 1)
    assert "expected J of at most" in str(SparseTir(mode="paper").unsupported(wide, find("host-simt")))
