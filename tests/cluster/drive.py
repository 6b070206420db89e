"""A run of slow fake cases on two workers as a process of its own: ``python drive.py FOLDER CASES``."""

from __future__ import annotations

import sys
from pathlib import Path

import suite_fakes

from spmark.suite.cluster import clusters
from spmark.suite.plan.options import Options
from spmark.suite.run.execute import Watcher, run_chosen

if __name__ == "__main__":
    suite_fakes.register()
    clusters.PRELOADS = (*clusters.PRELOADS, "cluster_fakes")
    chosen = suite_fakes.chosen([suite_fakes.case(f"m{number}", "slow") for number in range(int(sys.argv[2]))])
    with clusters.opened("cpu", gpus="0,1") as place:
        summary = run_chosen(chosen, place, Path(sys.argv[1]), Options(), watcher=Watcher(), until=float("inf"))
    sys.exit(130 if summary.interrupted else 0)
