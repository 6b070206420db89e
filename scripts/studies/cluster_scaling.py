"""How runs on many workers scale: true workers with a fake bench, and a simulation with recorded seconds of cases.

``--fit`` writes ``suite/cluster/seconds.tsv``, by which runs put long groups first. ``--simulate 8 64 512`` gives each
sweep's recorded cases to so many GPUs. ``--workers 1 2 4`` starts workers of Dask on this machine, whose bench sleeps a
fixed time for each case. ``--writing .`` times the process that writes records. All of it needs no GPU, and answers in
JSON.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "report" / "reference" / "h200"


def recorded_seconds() -> Iterator[tuple[str, Any, float]]:
    """Give sweeps with their ok records and the seconds of each: from the record before, of the same run, to it."""
    from spmark.records.rowfile import RUNS, read_rows, row_files
    from spmark.records.schema import Measurement
    from spmark.suite.run.provenance import RunRow

    for folder in sorted(path for path in RECORDS.iterdir() if path.is_dir()):
        rows = [row for file in row_files(folder, "records") for row in read_rows(file, Measurement)]
        begun = [run.started_at for file in row_files(folder, RUNS) for run in read_rows(file, RunRow)]
        rows.sort(key=lambda row: row.started_at)
        for before, row in pairwise(rows):
            seconds = (row.started_at - before.started_at).total_seconds()
            between = any(before.started_at < one <= row.started_at for one in begun)
            if before.environment == row.environment and 0 < seconds and row.samples_us and not between:
                yield folder.name, row, seconds


def fit(rows: Sequence[tuple[str, Any, float]]) -> dict[str, Any]:
    """Fit log seconds by a constant for each implementation and one exponent of flops, and write the table."""
    from spmark.suite.cluster.schedule import FLOPS

    names = sorted({row.spec.implementation for _, row, _ in rows})
    place = {name: number for number, name in enumerate(names)}
    features, logs = np.zeros((len(rows), len(names) + 1)), np.log([seconds for *_, seconds in rows])
    for number, (_, row, _) in enumerate(rows):
        features[number, place[row.spec.implementation]] = 1.0
        features[number, -1] = math.log((row.problem.flops + FLOPS) / FLOPS)
    constants = np.linalg.lstsq(features, logs, rcond=None)[0]
    guessed = features @ constants
    # A fit of logs is too low for sums: the sum over all cases is made right.
    factor = float(np.exp(logs).sum() / np.exp(guessed).sum())
    told = {name: factor * math.exp(constants[number]) for name, number in place.items()}
    lines = ["what\tvalue", f"exponent\t{constants[-1]:.3g}", *(f"{name}\t{told[name]:.3g}" for name in names)]
    (ROOT / "suite" / "cluster" / "seconds.tsv").write_text("\n".join(lines) + "\n")
    return {
        "cases": len(rows),
        "r2": round(1 - float(((logs - guessed) ** 2).sum() / ((logs - logs.mean()) ** 2).sum()), 3),
    }


def simulate(rows: Sequence[tuple[str, Any, float]], gpus: int, repeats: int) -> dict[str, Any]:
    """Give all sweeps' cases to GPUs as `grouped` orders them, each group to the GPU that is free first."""
    from spmark.suite.cluster.schedule import grouped
    from spmark.suite.plan.plan import Item

    took: dict[str, float] = {}
    items = []
    for number, (sweep, row, seconds) in product(range(repeats), rows):
        spec = row.spec.model_copy(update={"case_id": f"{number}:{sweep}:{row.case_id}", "seed": number})
        if spec.case_id not in took:
            items.append(Item(spec))
        took[spec.case_id] = seconds
    groups = grouped(items, gpus)
    orders = {
        "as ordered": groups,
        "in the plan's order": _in_plan_order(groups, items),
        "by true seconds": sorted(groups, key=lambda group: -_sum(group, took)),
    }
    total = sum(took.values())
    ends = {name: _end(order, took, gpus) for name, order in orders.items()}
    return {
        "gpus": gpus,
        "cases": len(items),
        "groups": len(groups),
        "matrices": len({item.spec.matrix.id for item in items}),
        "hours_of_one": round(total / 3600, 2),
        "longest_case_s": round(max(took.values()), 1),
        "longest_group_s": round(max(_sum(group, took) for group in groups), 1),
        "seconds": {name: round(end, 1) for name, end in ends.items()},
        "efficiency": {name: round(total / gpus / end, 3) for name, end in ends.items()},
        "records_a_second": round(len(items) / ends["as ordered"], 1),
        "loads_a_second": round(len(groups) / ends["as ordered"], 2),
    }


def _in_plan_order(groups: Sequence[Sequence[Any]], items: Sequence[Any]) -> list[Sequence[Any]]:
    number = {item.spec.case_id: place for place, item in enumerate(items)}
    return sorted(groups, key=lambda group: number[group[0].spec.case_id])


def _sum(group: Sequence[Any], took: Mapping[str, float]) -> float:
    return sum(took[item.spec.case_id] for item in group)


def _end(groups: Sequence[Sequence[Any]], took: Mapping[str, float], gpus: int) -> float:
    free = [0.0] * gpus
    for group in groups:
        heapq.heapreplace(free, free[0] + _sum(group, took))
    return max(free)


def true_workers(count: int, cases: int, sleep_s: float) -> dict[str, Any]:
    """Measure fake cases on workers of this machine."""
    import suite_fakes

    from spmark.suite.cluster import clusters
    from spmark.suite.plan.options import Options
    from spmark.suite.run.execute import Watcher, run_chosen

    # Five cases of each matrix, as of five widths: 2,000 cases are so many groups that 16 workers get the same number.
    told = [suite_fakes.case(f"m{number // 5}", "sleep", width=32 + number % 5) for number in range(cases)]
    told = [suite_fakes.but(case, config={"do": "sleep", "seconds": sleep_s}) for case in told]
    ends: list[float] = []

    class Clock(Watcher):
        def recorded(self, row: Any) -> None:
            ends.append(time.monotonic())

    with clusters.opened("cpu", gpus=",".join(map(str, range(count)))) as place, tempfile.TemporaryDirectory() as out:
        assert place is not None
        started = time.monotonic()
        run_chosen(suite_fakes.chosen(told), place, Path(out) / "r", Options(), watcher=Clock(), until=math.inf)
        seconds = time.monotonic() - started
    assert len(ends) == cases
    # Starting Python so often on few cores takes longer than on nodes of their own: the middle half shows the rate.
    # A line through all of it, since cases of workers that began together end together.
    middle = ends[cases // 4 : cases * 3 // 4]
    a_case_s = count / float(np.polyfit(middle, np.arange(len(middle)), 1)[0])
    return {
        "workers": count,
        "cases": cases,
        "seconds": round(seconds, 2),
        "of_the_ideal": round(cases * sleep_s / count / seconds, 3),
        "of_the_ideal_in_the_middle_half": round(sleep_s / a_case_s, 3),
        "beyond_the_bench_ms_a_case": round((a_case_s - sleep_s) * 1e3, 1),
    }


class _Instant:
    """A place whose cases take no time, so that writing alone is timed."""

    def __init__(self, environment: Any, text: str, together: int) -> None:
        self.environment, self._text, self._together = environment, text, together

    def measure(self, items: Sequence[Any], options: Any, **_: Any) -> Iterator[Any]:
        from spmark.suite.cluster.work import News
        from spmark.suite.run.execute import Answer
        from spmark.suite.run.messages import Result

        for start in range(0, len(items), self._together):
            taken_in = [(item, News.model_validate_json(self._text)) for item in items[start : start + self._together]]
            yield [
                Answer(item, Result(news.outcome, news.seen), self.environment)
                for item, news in taken_in
                if news.outcome
            ]


def writing(count: int, folder: Path, together: int) -> dict[str, Any]:
    """Time the process that owns the files: taking in an outcome of usual size, and writing its record to disk."""
    import suite_fakes

    from spmark.records.schema import Baseline, Outcome, SeenConfig, Status
    from spmark.suite.cluster.work import News
    from spmark.suite.plan.options import Options
    from spmark.suite.run.execute import Watcher, run_chosen

    samples = [10.0 + number / 8 for number in range(60)]
    beside = Baseline(implementation="fake", config={}, samples_us=samples)
    outcome = Outcome(status=Status.OK, samples_us=samples, baseline=beside)
    seen = [SeenConfig(config={"tile": number}, samples_us=samples[:10]) for number in range(20)]
    environment = suite_fakes.environment()
    news = News(kind="measured", worker="tls://", environment=environment, outcome=outcome, seen=seen)
    chosen = suite_fakes.chosen([suite_fakes.case(f"m{number}") for number in range(count)])
    started, computed = time.monotonic(), time.process_time()
    with tempfile.TemporaryDirectory(dir=folder) as out:
        place = _Instant(environment, news.model_dump_json(), together)
        run_chosen(chosen, place, Path(out) / "r", Options(), watcher=Watcher(), until=math.inf)
    seconds, own = time.monotonic() - started, time.process_time() - computed
    return {
        "records": count,
        "together": together,
        "ms_a_record": round(seconds / count * 1e3, 2),
        "of_it_computing": round(own / count * 1e3, 2),
    }


def main() -> None:
    """Answer in JSON what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--simulate", type=int, nargs="*", default=[], metavar="GPUS")
    parser.add_argument("--repeats", type=int, default=1, help="of all recorded cases, in a simulation")
    parser.add_argument("--workers", type=int, nargs="*", default=[], metavar="COUNT")
    parser.add_argument("--writing", type=Path, metavar="FOLDER", help="of the disk that records are written to")
    parser.add_argument("--cases", type=int, default=2000, help="of the most workers; fewer workers get their share")
    parser.add_argument("--sleep", type=float, default=0.5, metavar="SECONDS", help="of a fake case")
    args = parser.parse_args()
    answer: dict[str, Any] = defaultdict(list)
    rows = list(recorded_seconds()) if args.fit or args.simulate else []
    if args.fit:
        answer["fit"] = fit(rows)
    answer["simulated"] = [simulate(rows, gpus, args.repeats) for gpus in args.simulate]
    if args.workers or args.writing:
        folders = [str(ROOT / "tests" / name) for name in ("cluster", "suite")]
        os.environ["PYTHONPATH"] = os.pathsep.join([*folders, os.environ.get("PYTHONPATH", "")])
        os.environ["FAKE_LOG"] = os.devnull
        sys.path[:0] = folders
        import suite_fakes

        from spmark.suite.cluster import clusters

        suite_fakes.register()
        clusters.PRELOADS = (*clusters.PRELOADS, "cluster_fakes")
        answer["measured"] = [
            true_workers(count, args.cases * count // max(args.workers), args.sleep) for count in args.workers
        ]
        answer["writing"] = [writing(1000, args.writing, together) for together in (1, 8, 64) if args.writing]
        answer["cores"] = len(os.sched_getaffinity(0))
    print(json.dumps(answer, indent=2))  # noqa: T201


if __name__ == "__main__":
    main()
