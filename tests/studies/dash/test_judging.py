"""Gains by hand: what is chosen by one half of the samples is valued by the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from collected_fakes import row_of

from spmark.studies.collected import SampledConfig
from spmark.studies.dash.compare import judged

pytestmark = pytest.mark.full

CHOSEN_BY, VALUED_BY = (4.0, 2.0, 1.0, 1.1), (4.4, 2.0, 1.6, 1.0)


def result(*scores: float) -> dict[str, Any]:
    """Judge the scores of four configs, the default first, and of one that has no samples."""
    halves = zip(CHOSEN_BY, VALUED_BY, strict=True)
    timed = [SampledConfig(config={}, chosen_by_us=(one,), valued_by_us=(other,)) for one, other in halves]
    configs = (*timed[:2], SampledConfig(config={}, reason="too large"), *timed[2:])
    return judged(row_of("spade_sim", 1).model_copy(update={"configs": configs}), np.array(scores), 0.0)


def test_the_second_half_values_what_the_first_half_chose():
    found = result(3.0, 1.0, 4.0, 2.0)
    # The optimum is config 2 by 1.0 us, whose value is 1.6 us; of the first five, all are in, and the same is chosen.
    assert (found["default_us"], found["optimum_us"], found["top1_us"], found["top5_us"]) == (4.4, 1.6, 2.0, 1.6)


def test_ties_keep_their_order():
    assert result(0.0, 0.0, 1.0, 2.0)["top1_us"] == 4.4
    assert result(1.0, 0.0, 0.0, 2.0)["top1_us"] == 2.0


def test_agreement_is_with_the_second_half_and_the_first_half_is_its_ceiling():
    found = result(*VALUED_BY)
    assert (found["opa"], found["tau"]) == (1.0, pytest.approx(1.0))
    assert found["opa_ceiling"] == pytest.approx(5 / 6), "the halves order configs 2 and 3 differently"
    assert found["tau_ceiling"] == pytest.approx(4 / 6)
    assert result(1.0, 1.0, 1.0, 1.0)["tau"] is None
