"""Clusters of CPU workers that measure fake cases."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "suite"))

import suite_fakes

from spmark.suite.cluster import clusters
from spmark.suite.cluster.gather import Cluster
from spmark.suite.plan.options import Options
from spmark.suite.run.execute import Watcher, run_chosen


@pytest.fixture(scope="module")
def fakes(tmp_path_factory):
    """Register the fake implementation here, and in the workers of clusters and their children."""
    with pytest.MonkeyPatch.context() as patch:
        suite_fakes.install(patch, tmp_path_factory.mktemp("fakes") / "measured.log", Path(__file__).parent)
        patch.setattr(clusters, "PRELOADS", (*clusters.PRELOADS, "cluster_fakes"))
        yield suite_fakes


@pytest.fixture(scope="module")
def client(request, fakes, tmp_path_factory):
    """Start workers: four, or what a test's parameter says of each of them; tests with one parameter share them."""
    told = getattr(request, "param", ("", "", "", ""))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAKE_WORKERS", json.dumps(dict(enumerate(told))))
        patch.setenv("FAKE_CACHE", str(tmp_path_factory.mktemp("apart")))
        with clusters.on_this_machine([str(number) for number in range(len(told))]) as client:
            yield client


@pytest.fixture
def run(fakes, client, tmp_path):
    """Run cases on the cluster's workers into one folder."""
    Path(os.environ["FAKE_LOG"]).unlink(missing_ok=True)

    def run(cases, watcher=None, until=float("inf"), **fields):
        place, options = Cluster(client, "cpu", ""), Options(**fields)
        folder, watcher = tmp_path / "r", watcher or Watcher()
        return run_chosen(fakes.chosen(cases), place, folder, options, watcher=watcher, until=until)

    return run
