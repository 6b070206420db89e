"""Clusters of CPU workers that measure fake cases."""

from __future__ import annotations

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


@pytest.fixture
def fakes(monkeypatch, tmp_path):
    """Register the fake implementation here, and in the workers of clusters and their children."""
    suite_fakes.install(monkeypatch, tmp_path / "measured.log", Path(__file__).parent)
    monkeypatch.setattr(clusters, "PRELOADS", (*clusters.PRELOADS, "cluster_fakes"))
    return suite_fakes


@pytest.fixture
def client(fakes):
    with clusters.on_this_machine(["0", "1"]) as client:
        client.wait_for_workers(2)
        yield client


@pytest.fixture
def run(fakes, client, tmp_path):
    """Run cases on the cluster's workers into one folder."""

    def run(cases, watcher=None, until=float("inf"), **fields):
        place = Cluster(client, "cpu")
        watcher, options = watcher or Watcher(), Options(**fields)
        return run_chosen(fakes.chosen(cases), place, tmp_path / "r", options, watcher=watcher, until=until)

    return run
