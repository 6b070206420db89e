"""Speed-ups over the best of the others, by hand."""

from __future__ import annotations

import math

import pytest

from spmark.records.schema import Baseline
from spmark.report.analysis.cases import derive
from spmark.report.records import load_records
from spmark.report.tables.winners import best_other_table, over_best_other

# Matrix: speed-up over the baseline by label.
SPEEDUPS = {
    "m_1x1@0.7": {"cublas": 4.0, "gespmm": 0.5, "lo_spmm": 2.0, "lo_spmm_rank": 3.0},
    "m_1x1@0.9": {"gespmm": 0.5, "lo_spmm": 2.0},
    "n_1x1@0.9": {"gespmm": 2.0, "lo_spmm": 8.0},
}


@pytest.fixture
def derived(records, write):
    rows = []
    for i, (matrix, labels) in enumerate(SPEEDUPS.items()):
        for label, speedup in ({"cusparse_best": 1.0} | labels).items():
            itself = label == "cusparse_best"
            base = None if itself else Baseline(implementation="cusparse_best", config={}, samples_us=[8.0] * 8)
            rows.append(
                records.measurement(
                    implementation="lo_spmm" if label.startswith("lo_spmm") else label, label=label, baseline=base,
                    source="dnn_layers", matrix=matrix, matrix_hash=f"{i:064x}", samples_us=[8.0 / speedup] * 8,
                )
            )  # fmt: skip
    return derive(load_records([write(rows)]), "cusparse_best")


def test_configs_of_one_implementation_are_no_others(derived):
    rows = over_best_other(derived).set_index(["matrix", "label"])
    assert rows.loc[("dnn_layers/m_1x1@0.7", "lo_spmm_rank"), ["best_other", "over_best"]].tolist() == ["cublas", 0.75]
    assert rows.loc[("dnn_layers/m_1x1@0.7", "cublas"), ["best_other", "over_best"]].tolist() == [
        "lo_spmm_rank",
        pytest.approx(4 / 3),
    ]
    assert rows.loc[("dnn_layers/m_1x1@0.9", "lo_spmm"), ["best_other", "over_best"]].tolist() == ["cusparse_best", 2.0]


def test_means_over_everything_and_by_sparsity(derived):
    frame = best_other_table(derived).frame.set_index(["of", "label"])
    assert frame.loc[("all", "lo_spmm"), "over_best_speedup"] == pytest.approx((0.5 * 2 * 4) ** (1 / 3))
    assert frame.loc[("dnn_layers 90 %", "lo_spmm"), "over_best_speedup"] == pytest.approx(math.sqrt(8))
    assert frame.loc[("dnn_layers 90 %", "lo_spmm"), "fastest_share"] == 1
    assert "Configs of one implementation are not compared with each other" in best_other_table(derived).note
    assert list(dict.fromkeys(frame.index.get_level_values("of"))) == ["all", "dnn_layers 70 %", "dnn_layers 90 %"]


def test_one_implementation_alone_has_no_others(derived):
    alone = derived[derived["implementation"] == "lo_spmm"]
    assert best_other_table(alone).frame.empty
