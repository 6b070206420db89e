"""STile's prices as a cost model: scores are what a search predicts of its forms, whatever the schedule."""

from __future__ import annotations

import numpy as np
from problems import random_csr

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.runtime.device import shipped_calibration
from spmark.impls.stile.plan import Stile
from spmark.impls.table import cost_model

H200 = DeviceSpec.load(shipped_calibration("nvidia-h200"))


def test_forms_have_the_prices_of_their_tiles() -> None:
    rng = np.random.default_rng(3)
    problem = Problem(Op.SPMM, random_csr(200, 160, rng.integers(0, 60, 200).tolist()), 64, DType.FLOAT16)
    how = Stile()
    calibration, _ = how.priced_by(problem, H200)
    forms = how.forms(problem, calibration, measured=True)
    assert len(forms) > 2
    configs = [{**form.facts, "threads": threads} for form in forms for threads in (128, 256)]
    scores = cost_model(how, "prices", H200).score(problem, configs)
    assert scores.tolist() == [form.predicted_ms * 1e-3 for form in forms for _ in range(2)]


def test_a_form_that_no_search_finds_has_no_score() -> None:
    problem = Problem(Op.SDDMM, random_csr(64, 64, [4] * 64), 32, DType.FLOAT16)
    assert np.isnan(cost_model(Stile(), "prices", H200).score(problem, [{"formats": "other", "part": 7}, {}])).all()
