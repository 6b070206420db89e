"""Judge cost models by recorded searches, without a GPU.

    python examples/replay_models.py report/reference/h200/lo_spmm_fig6_reordering

A search measures many configs of one problem, and its records keep every time. The script orders these configs by what
the search had predicted, and by chance. It prints for each order the mean regret (time of the first config over the
best time, minus one), Kendall's tau, and how often the best config is among the first ten. `--model` takes the names
that `spmark study replay --model` takes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from spmark.report.analysis.replay import summary
from spmark.suite.study.replay import judged, replay


def main() -> None:
    """Replay the models over the records that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("records", type=Path, nargs="+", help="folders with records and candidates.jsonl")
    parser.add_argument("--model", nargs="+", default=["recorded", "random"])
    args = parser.parse_args()

    cases = {model: judged(replay(args.records, model)) for model in args.model}
    if any(frame.empty for frame in cases.values()):
        raise SystemExit("expected records whose searches measured configs, found none")
    shared = set.intersection(*(set(frame["case_id"]) for frame in cases.values()))
    rows = [
        summary(frame[frame["case_id"].isin(shared)]).assign(model=model)[
            ["model", "implementation", "source", "cases", "regret", "kendall", "top_10"]
        ]
        for model, frame in cases.items()
    ]
    print(pd.concat(rows).round(3).to_string(index=False))


if __name__ == "__main__":
    main()
