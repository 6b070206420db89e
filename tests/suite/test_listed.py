"""What pages say of packaged sweeps."""

from __future__ import annotations

from spmark.datasets.sweep.model import Sweep, expand
from spmark.datasets.sweep.reading import packaged_sweeps
from spmark.impls.core.devicespec import DeviceKind
from spmark.suite.cli.report import PackagedSweeps


def test_a_packaged_sweep_says_its_title_first_comment_and_cases() -> None:
    listed = PackagedSweeps()
    assert list(listed) == list(packaged_sweeps())
    assert len(listed) == len(packaged_sweeps())
    quickstart = listed["quickstart"]
    sweep = Sweep.load("quickstart")
    assert quickstart.title == sweep.title
    assert quickstart.about.startswith("Real inputs of the papers that need no download: attention masks")
    for kind in (DeviceKind.CPU, DeviceKind.CUDA):
        assert quickstart.labels == {case.case_id: case.label for case in expand(sweep, kind)}
