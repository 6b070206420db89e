"""The sticky-error protocol with the real thing: kernels that write where nothing is, and that never end."""

from __future__ import annotations

import pytest

from spmark.impls.runtime.device import cuda_missing, find
from spmark.records.schema import Status
from spmark.suite.run.messages import Setup
from spmark.suite.run.worker import Worker

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing()))]


@pytest.fixture
def worker(fakes, monkeypatch):
    monkeypatch.setenv("FAKE_BENCH", "suite_fakes_gpu:WildBench")
    with Worker(Setup(device=find("cuda"))) as worker:
        yield worker


def test_a_wild_write_poisons_one_process_only(worker, fakes):
    row = worker.measure(fakes.case("wild", "segfault")).outcome
    assert row.status is Status.RUN_ERROR
    assert "illegal" in row.reason.lower()
    assert "poisoned the device" in row.reason
    assert worker.measure(fakes.case("next")).outcome.status is Status.OK


def test_a_kernel_that_never_ends_is_killed_and_the_device_computes_again(worker, fakes):
    worker.measure(fakes.case("first"))
    row = worker.measure(fakes.case("endless", "hang", time_limit_s=3.0)).outcome
    assert row.status is Status.TIMEOUT
    assert worker.measure(fakes.case("next")).outcome.status is Status.OK
