"""What figures of moved models say, by hand."""

from __future__ import annotations

from typing import Any

import moved_fakes
import pandas as pd

from spmark.report.derive.transfers import CURVES
from spmark.report.figures.transfer_findings import ahead, while_training


def test_scores_of_zero_have_no_minus() -> None:
    """Where nothing was held out the scores are those of the training samples."""
    place = ("cpu", "cuda", "GPU", "spmm", False, "fine-tuning")
    rows = [(*place, epoch, "tau", 1, value, value, value) for epoch, value in ((1, -0.001), (2, 0.5))]
    said = while_training(pd.DataFrame(rows, columns=CURVES))
    assert said == "spmm, cpu to cuda (GPU), fine-tuning: tau goes from 0.00 to 0.50."


def test_a_factor_that_is_written_as_one_is_a_tie(moved: Any) -> None:
    near = moved(*moved_fakes.results({"dash": (0.9, 8, 5), "scratch": (0.8999, 0, 5)}, seeds=(0,), noise=0))
    assert ahead(near, ("dash", "scratch")).endswith("a factor of 1.00, a tie.")
