"""Records out of parts: samples stay as they were taken, and what is noise beyond six digits is rounded."""

from __future__ import annotations

from spmark.datasets.sweep.model import Sweep, expand
from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.interfaces import Search
from spmark.impls.core.record import MatrixKind, ProblemFacts
from spmark.impls.runtime.device import shipped
from spmark.suite.run.rows import Checked, Loaded, Planned, Timed, make_row

SAMPLES = [1234567.891, 22.624, 0.032]
FACTS = ProblemFacts(num_rows=4, num_cols=4, nnz=100, longest_row=3, flops=512, compulsory_bytes=100)


def test_samples_stay_and_means_seconds_and_errors_have_six_digits() -> None:
    case = expand(Sweep.load("smoke", ()), DeviceKind.CUDA)[0]
    phases = {"upload": 0.0005875559999992674, "search": 1234567.891, "select": 0.0}
    search = Search(candidates=8, compile_s=1 / 3, run_s=0.43188794599998204)
    timed = Timed(SAMPLES, warm_samples_us=SAMPLES, graph_samples_us=[2.0400000736117363, 1.9759999588131905])
    parts = (Loaded(MatrixKind.PATTERN, "", FACTS), Planned({"share": 1 / 3}, phases, 150, 0, search))
    row = make_row(case, shipped("nvidia-h200"), "e", *parts, Checked(1.4224671046905553e-07, 0), timed)
    assert row.samples_us == row.warm_samples_us == SAMPLES
    assert row.config == {"share": 1 / 3}, "a config is what a plan was made with"
    assert row.graph_samples_us == [2.04, 1.976]
    assert row.phases_s == {"upload": 0.000587556, "search": 1234570.0, "select": 0.0}
    assert row.max_rel_error == 1.42247e-07
    assert row.search is not None
    assert (row.search.candidates, row.search.compile_s, row.search.run_s) == (8, 0.333333, 0.431888)
