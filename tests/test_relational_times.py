"""The script that times RGMS gives a line for each implementation and config, with times or with a reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from relational import drawn, relational_matrices
from scripts_by_name import load_script

from spmark.datasets.sources.minkunet import LAYERS
from spmark.impls.core.operators import reference
from spmark.impls.core.problem import DType
from spmark.impls.core.relational import RelationalProblem
from spmark.impls.runtime.device import find
from spmark.impls.runtime.lab import open_lab

SCRIPT: Any = load_script("relational_times")


def lines(device: str, dtype: DType) -> list[dict[str, Any]]:
    problem, spec = RelationalProblem(relational_matrices()["hub"], 16, 16, dtype), find(device)
    return list(SCRIPT.times(problem, open_lab(spec), spec))


def test_times_on_the_host() -> None:
    found = lines("cpu", DType.FLOAT32)
    ours = [line for line in found if not line["config"] and not line["implementation"].endswith("_rgcn")]
    assert [line["implementation"] for line in ours] == ["gather_gemm_scatter"]
    assert all(line["median_us"] > 0 and line["max_rel_error"] < 1e-5 and "reason" not in line for line in ours)


def test_layers_stand_behind_each_other_with_relu_between(monkeypatch: pytest.MonkeyPatch) -> None:
    spec, made = find("cpu"), list[Any]()
    lab, problem = open_lab(spec), RelationalProblem(drawn(20, 20, [60, 30]), 8, 8)
    empty = lab.empty
    monkeypatch.setattr(lab, "empty", lambda *about: made.append(empty(*about)) or made[-1])
    assert any("median_us" in line for line in SCRIPT.times(problem, lab, spec, layers=2))
    x, w, hidden, out = made[:4]
    np.testing.assert_allclose(hidden, np.maximum(reference(problem, (x, w)).result, 0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(out, reference(problem, (hidden, w)).result, rtol=1e-4, atol=1e-4)


def test_a_graph_has_the_run_of_its_own_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = find("cpu")
    lab, problem = open_lab(spec), RelationalProblem(drawn(20, 20, [60, 30]), 8, 8)
    monkeypatch.setattr(lab, "graph_times_us", lambda run, count: [run() or 7.0] * count)
    timed = [line for line in SCRIPT.times(problem, lab, spec) if "median_us" in line]
    assert timed
    assert all(line["graph_us"] == 7.0 for line in timed)


def test_plans_are_right_where_times_mean_nothing() -> None:
    *found, refused = sorted(lines("host-simt", DType.FLOAT32), key=lambda line: "reason" in line)
    assert (refused["implementation"], refused["reason"]) == ("rgms_rows", "expected 16-bit floats, found float32")
    assert [line["config"] for line in found if line["implementation"] == "rgms_hyb"] == [{}, {"tuned": False}]
    for line in found:
        assert "median_us" not in line
        assert line["stored"] > 0
        assert line["max_rel_error"] < 1e-5


def test_a_scan_stands_for_all_layers_of_the_network() -> None:
    found = list(SCRIPT.problems("minkunet/drawn", [7], DType.FLOAT16, "stored"))
    widths = {(name, problem.width_in, problem.width_out) for name, problem in found}
    assert widths == {(f"minkunet/drawn/{layer.map}", layer.width_in, layer.width_out) for layer in LAYERS}
    assert len(found) == len(LAYERS)
    (one,) = SCRIPT.problems("minkunet/drawn/down4", [7], DType.FLOAT16, "stored")
    assert (one[1].width_in, one[1].matrix.relations) == (7, 8)


def test_a_wrong_result_has_a_reason_and_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SCRIPT, "tolerance", lambda *_: 0.0)
    first, *_ = lines("cpu", DType.FLOAT32)
    assert first["reason"].startswith("expected an error of at most 0, ")
    assert "median_us" not in first


def test_the_summary_is_of_times_in_graphs() -> None:
    def line(name: str, us: float, held: int, **config: Any) -> dict[str, Any]:
        about = {"implementation": name, "config": config, "operand_bytes": 4, "roof_us": 6.0}
        return {**about, "graph_us": us, "device_bytes": held}

    first = [line("rgms_hyb", 10, 3), line("rgms_hyb", 20, 6, tuned=False), line("rgms_naive", 40, 9)]
    second = [
        line("rgms_hyb", 30, 4),
        line("gather_gemm_scatter", 70, 99),
        line("gather_gemm_scatter", 60, 8, products="each"),
        {**line("rgms_naive", 270, 1), "roof_us": 1.0},
    ]
    found = SCRIPT.summary([first, second])
    expected = {
        "extended_over_rgms_naive": 6.0,
        "extended_over_gather_gemm_scatter": 2.0,
        "extended_bytes": 8 / 12,
        "extended_share": (6 / 10 * 6 / 30) ** 0.5,
        "published_over_rgms_naive": 2.0,
        "published_share": 6 / 20,
    }
    assert found == pytest.approx(expected)


def test_the_roof_is_the_largest_of_three() -> None:
    problem = RelationalProblem(relational_matrices()["hub"], 16, 16)
    rates = {"copy_bytes_per_s": 1e9, "fma_flops_per_s": 1e9, "l2_gather_bytes_per_s": {64: 1e6, 512: 1e15}}
    device = find("host-simt").model_copy(update=rates)
    assert SCRIPT.roof_us(problem, device) == pytest.approx(problem.matrix.nnz * 64)
    assert np.isnan(SCRIPT.roof_us(problem, find("host-simt")))
