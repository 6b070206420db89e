"""The map of winners: by hand for single matrices, and for pooled layers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

from spmark.impls.core.problem import DType, Op
from spmark.records.schema import Baseline
from spmark.report.analysis.cases import MOST_GROUPS, derive
from spmark.report.records import load_records
from spmark.report.tables.winners import COLUMNS, place_of, winner_map, winners

BASE = Baseline(implementation="cusparse_best", config={}, samples_us=[10.0] * 8)


@pytest.fixture
def derived_of(records: ModuleType, write: Callable[..., Path]) -> Callable[..., pd.DataFrame]:
    """Give the cases of times in µs by (matrix, label), each against a baseline of 10 µs."""

    def make(times: dict[tuple[str, str], float], **changes: Any) -> pd.DataFrame:
        matrices = list(dict.fromkeys(matrix for matrix, _ in times))
        rows = [
            records.measurement(
                matrix=matrix.partition("/")[2] or matrix, source=matrix.partition("/")[0], label=label,
                matrix_hash=f"{matrices.index(matrix):064x}", implementation=label.partition(":")[0],
                samples_us=[us] * 8, **({} if label == "cusparse_best" else {"baseline": BASE}), **changes,
            )
            for (matrix, label), us in times.items()
        ]  # fmt: skip
        return derive(load_records([write(rows)]), "cusparse_best")

    return make


@pytest.fixture
def found(derived_of: Callable[..., pd.DataFrame]) -> Callable[..., pd.DataFrame]:
    """Give the winners of such times."""
    return lambda times, **changes: winners(derived_of(times, **changes), "cusparse_best")


def test_an_implementation_counts_with_its_fastest_label(found: Callable[..., pd.DataFrame]) -> None:
    times = {("s/a", "stile"): 5.0, ("s/a", "stile:one"): 4.0, ("s/a", "gespmm"): 4.5, ("s/a", "cusparse_best"): 10.0}
    (row,) = found(times).to_dict("records")
    assert tuple(row) == COLUMNS
    assert (row["implementation"], row["next"], row["wins"], row["matrices"]) == ("stile", "gespmm", 1, 1)
    assert (row["speedup"], row["next_speedup"]) == pytest.approx((2.5, 10 / 4.5))
    assert row["tried"] == 3


def test_the_baseline_wins_where_nothing_is_faster(found: Callable[..., pd.DataFrame]) -> None:
    times = {("s/a", "stile"): 12.0, ("s/a", "cusparse_best"): 10.0}
    (row,) = found(times).to_dict("records")
    assert (row["implementation"], row["speedup"], row["next"]) == ("cusparse_best", 1.0, "stile")


def test_a_baseline_whose_own_record_is_lost_wins_where_what_ran_in_turn_is_slower(
    found: Callable[..., pd.DataFrame],
) -> None:
    (row,) = found({("s/a", "stile"): 12.0, ("s/a", "gespmm"): 16.0}).to_dict("records")
    assert (row["implementation"], row["speedup"], row["next"], row["tried"]) == ("cusparse_best", 1.0, "stile", 3)


def test_of_pooled_layers_the_name_is_what_wins_most_often(found: Callable[..., pd.DataFrame]) -> None:
    times = {(f"dnn/layer{number}@0.9", "stile"): 5.0 for number in range(MOST_GROUPS + 1)}
    times |= {(matrix, "gespmm"): 8.0 for matrix, _ in list(times)}
    times |= {("dnn/layer0@0.9", "gespmm"): 0.1, ("dnn/layer1@0.9", "stile"): 2.5}
    (row,) = found(times).to_dict("records")
    layers = MOST_GROUPS + 1
    assert (row["matrix"], row["implementation"]) == ("dnn 90 %", "stile")
    assert (row["wins"], row["matrices"]) == (layers - 1, layers)
    assert row["speedup"] == pytest.approx((2 ** (layers - 1) * 4) ** (1 / layers))


def test_a_matrix_of_few_rivals_gives_way_to_those_of_many(found: Callable[..., pd.DataFrame]) -> None:
    few = {("s/few", "stile"): 5.0, ("s/few", "cusparse_best"): 10.0, ("s/alone", "stile"): 5.0}
    many = {("s/many", label): us for label, us in (("stile", 5.0), ("gespmm", 6.0), ("cusparse_best", 10.0))}
    assert list(found(few)["matrix"]) == ["s/few"]
    assert list(found(few | many)["matrix"]) == ["s/many"]


@pytest.mark.parametrize(("second_us", "second"), [(4.05, "gespmm"), (4.12, "")])
def test_a_second_that_is_as_fast_stands_beside_the_winner(
    found: Callable[..., pd.DataFrame], second_us: float, second: str
) -> None:
    times = {("s/a", "stile"): 4.0, ("s/a", "gespmm"): second_us, ("s/a", "cusparse_best"): 10.0}
    place = place_of(found(times).to_dict("records")[0])
    assert (place.winner, place.speedup, place.second) == ("stile", "2.50×", second)
    assert place.told == f"Second: gespmm, {10 / second_us:.3g}×. 3 implementations have a time here."


def test_rows_without_a_system_are_left_out_and_counted(derived_of: Callable[..., pd.DataFrame]) -> None:
    libraries = {("twin/b", label): us for label, us in (("gespmm", 6.0), ("cublas", 7.0), ("cusparse_best", 10.0))}
    derived = derived_of(
        libraries | {("s/a", label): us for (_, label), us in libraries.items()} | {("s/a", "stile_x"): 5.0}
    )
    block = winner_map(derived, "cusparse_best", ["stile"])
    assert list(block.frame["matrix"]) == ["s/a"]
    assert "Rows left out in which none of the systems has a record: 1." in block.note
    assert "A twin is" not in block.note


def test_panels_and_matrices_stand_in_the_order_of_figures(records: ModuleType, write: Callable[..., Path]) -> None:
    rows = records.sweep(ops=(Op.SDDMM, Op.SPMM), dtypes=(DType.FLOAT16, DType.FLOAT32), widths=(128, 32), samples=8)
    derived = derive(load_records([write(rows)]), "cusparse_best")
    block = winner_map(derived, "cusparse_best")
    assert "over cusparse_best" in block.note
    panels = list(dict.fromkeys(zip(block.frame["op"], block.frame["dtype"], strict=True)))
    assert panels == [("spmm", "float32"), ("spmm", "float16"), ("sddmm", "float32"), ("sddmm", "float16")]
    first = block.frame.head(6)
    assert list(first["matrix"]) == ["planetoid/cora"] * 2 + ["ogb/arxiv"] * 2 + ["snap/web-NotreDame"] * 2
    assert list(first["width"]) == [32, 128] * 3


def test_without_speedups_nothing_wins(records: ModuleType, write: Callable[..., Path]) -> None:
    frame = load_records([write([records.measurement(samples_us=[1.0] * 8)])])
    assert winners(derive(frame, None), "cusparse_best").empty
