"""``asv publish`` over imported sweeps: series of every machine, and a regression that it finds in one."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from test_asv_import import environment, record, write

from spmark.impls.core.problem import Op
from spmark.suite.asv.importer import import_records

pytest.importorskip("asv", reason="airspeed velocity is not installed (extra asv)")
pytestmark = pytest.mark.full

COMMITS, SLOWER_FROM = 10, 5
NAME = "tracked.SweptSpmm.track_time"
START = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def html(tmp_path_factory) -> Path:
    """Publish ten commits, of which the sixth made gespmm half as fast again on one matrix."""
    root = tmp_path_factory.mktemp("project")
    git = ["git", "-C", str(root), "-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    subprocess.run(["git", "init", "--quiet", "--initial-branch=main", str(root)], check=True)
    results = root / ".asv" / "results"
    rng = np.random.default_rng(0)
    for number in range(COMMITS):
        when = {"GIT_COMMITTER_DATE": f"{(START + timedelta(days=number)).timestamp():.0f} +0000"}
        subprocess.run(
            [*git, "commit", "--quiet", "--allow-empty", "--message", f"core: step {number}"], check=True, env=when
        )
        head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
        of = environment(head.stdout.strip())
        rows = []
        for width in (32, 128, 512):
            for name, us in (("cusparse_best", 20.0), ("gespmm", 45.0 if number >= SLOWER_FROM else 30.0)):
                samples = list(us * width / 128 * rng.lognormal(0, 0.005, 30))
                rows.append(record(of, width=width, implementation=name, samples_us=samples))
        if number == COMMITS - 1:
            rows.append(record(of, op=Op.SDDMM, width=128, implementation="gespmm", samples_us=samples))
        import_records([write(root / "in" / str(number), of, rows)], results, root)
    configuration = {
        "version": 1,
        "project": "spmark",
        "repo": ".",
        "branches": ["main"],
        "benchmark_dir": "benchmarks",
        "results_dir": ".asv/results",
        "html_dir": ".asv/html",
        "plugins": [".spmark.suite.asv.plugin"],
    }
    (root / "asv.conf.json").write_text(json.dumps(configuration))
    done = subprocess.run([sys.executable, "-m", "asv", "publish"], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in done.stdout.lower(), done.stdout
    return root / ".asv" / "html"


def test_the_regression_is_found_and_nothing_else(html):
    found = json.loads((html / "regressions.json").read_text())["regressions"]
    assert found
    assert all(NAME in str(entry[0]) and "gespmm" in str(entry[0]) for entry in found)


def test_series_have_a_graph_and_names_of_all_machines(html):
    held = json.loads((html / "index.json").read_text())
    assert held["params"]["machine"] == ["test-gpu-cuda13"]
    assert "'triton_blocksparse'" in held["benchmarks"]["tracked.LiveSpmm.track_time"]["params"][0]
    (graph,) = (html / "graphs").rglob(f"machine-test-gpu-cuda13/**/{NAME}.json")
    points = json.loads(graph.read_text())
    assert len(points) == COMMITS
    measured = [value for _, values in points for value in values if value is not None]
    assert len(measured) == COMMITS * 6, "two implementations at three widths"
