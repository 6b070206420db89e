"""What pages say of packaged sweeps."""

from __future__ import annotations

from spmark.datasets.sweep.model import Sweep, expand
from spmark.datasets.sweep.reading import packaged_sweeps
from spmark.impls.core.devicespec import DeviceKind
from spmark.suite.cli.report import listed_sweep


def test_a_packaged_sweep_says_its_title_first_comment_and_cases() -> None:
    assert listed_sweep("mine") is None
    assert all(listed_sweep(name) for name in packaged_sweeps())
    quickstart = listed_sweep("quickstart")
    assert quickstart is not None
    sweep = Sweep.load("quickstart")
    assert quickstart.title == sweep.title
    assert quickstart.about.startswith("Real inputs of the papers that need no download: attention masks")
    for kind in (DeviceKind.CPU, DeviceKind.CUDA):
        assert quickstart.labels == {case.case_id: case.label for case in expand(sweep, kind)}
