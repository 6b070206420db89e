"""A slow-down of ten per cent is told by airspeed velocity from the noise of a GPU, at the factor that we document."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import numpy as np
import pytest
from test_asv_import import environment, record, write

from spmark.suite.asv.importer import import_records

pytest.importorskip("asv", reason="airspeed velocity is not installed (extra asv)")
pytestmark = pytest.mark.full

BETWEEN, WITHIN = 0.0085, 0.02
"""Relative standard deviations of a median over runs, and of the samples of a run, on an H200 (DESIGN.md)."""


@pytest.fixture
def compare(tmp_path):
    """Give a function that compares two commits with given times of kernels and searches, and gives the lines."""
    root = tmp_path / "project"
    git = ["git", "-C", str(root), "-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    subprocess.run(["git", "init", "--quiet", "--initial-branch=main", str(root)], check=True)
    rng = np.random.default_rng(1)

    def rows(of, slower):
        for implementation in ("cusparse", "gespmm"):
            for matrix in ("cora", "citeseer", "pubmed"):
                for width in (32, 128, 512):
                    factor = 1.1 if (implementation, matrix, width) in slower else 1.0
                    us = 20 * factor * rng.normal(1, BETWEEN)
                    search_s = 0.3 * (1.1 if (implementation, matrix) in slower else 1.0) * rng.normal(1, BETWEEN)
                    yield record(
                        of, implementation=implementation, matrix=matrix, width=width,
                        samples_us=list(us * rng.lognormal(0, WITHIN, 60)), phases_s={"search": search_s},
                    )  # fmt: skip

    def compare(*slower) -> list[str]:
        for number, planted in enumerate(((), slower)):
            subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message", f"step {number}"], check=True)
            head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
            of = environment(head.stdout.strip())
            import_records([write(root / "in" / str(number), of, rows(of, planted))], root / ".asv" / "results", root)
        configuration = {
            "version": 1, "project": "spmark", "repo": ".", "branches": ["main"], "results_dir": ".asv/results",
        }  # fmt: skip
        (root / "asv.conf.json").write_text(json.dumps(configuration))
        command = ["compare", "--factor", "1.05", "--only-changed", "--machine", "test-gpu-cuda13", "HEAD~1", "HEAD"]
        done = subprocess.run([sys.executable, "-m", "asv", *command], cwd=root, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return re.findall(r"^\| *[-+!x] *\|.*$", done.stdout, flags=re.MULTILINE)

    return compare


def test_ten_per_cent_in_a_kernel_and_a_search_are_flagged_and_nothing_else(compare):
    lines = compare(("gespmm", "pubmed", 512), ("gespmm", "cora"))
    assert all(line.startswith("| +") for line in lines), lines
    named = "\n".join(lines)
    assert re.search(r"SweptSpmm\.track_time\('gespmm', 'planetoid/pubmed', 512", named)
    assert re.search(r"SweptPlans\.track_search\('spmm', 'gespmm', 'planetoid/cora'\)", named)
    assert all(("pubmed', 512" in line) or ("cora" in line and "track_time" not in line) for line in lines), lines


def test_the_same_code_is_not_flagged(compare):
    assert compare() == []
