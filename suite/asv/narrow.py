"""Makes ``asv run`` and ``asv continuous`` measure and print what this machine can have of our benchmarks.

Airspeed velocity has no place for this in its plugins: three names of its modules are replaced, of the release that the
extra ``asv`` pins.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, ClassVar

from asv import runner, util
from asv.benchmarks import Benchmarks
from asv.commands import continuous, run
from asv.console import log
from asv_runner.statistics import get_err

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.runtime.device import cuda_missing, find
from spmark.suite.asv.history import swept
from spmark.suite.asv.pick import live, pick
from spmark.suite.benchmarks.tracked import LIVE_KEYS, SWEPT_FOLDER

ABSOLUTE = ("track_time", "track_cpu", "track_build", "track_build_cpu", "track_search", "track_phase")
"""What a clock says with no baseline beside it."""
_WIDEST = 110
"""Letters of a table's line; a table whose last parameter takes more has longer lines."""
_NA = "n/a"
"""As asv writes a value that there is not."""


def narrow() -> None:
    """Replace what discovers benchmarks and what formats their results, and keep our messages out of asv's."""
    # asv prints the messages of all loggers without their arguments.
    logging.getLogger("spmark").setLevel(logging.WARNING)
    run.Benchmarks = PickedBenchmarks
    continuous.Run = ComparedRun
    runner.format_benchmark_result = compact(runner.format_benchmark_result)


class ComparedRun(run.Run):  # type: ignore[misc]
    """A run of ``asv continuous``: on a CPU, of what has a baseline beside it alone."""

    @classmethod
    def run(cls, *given: Any, **named: Any) -> Any:
        """Run both commits."""
        PickedBenchmarks.compared = True
        return super().run(*given, **named)


class PickedBenchmarks(Benchmarks):  # type: ignore[misc]
    """Benchmarks of which those combinations are selected that ``--bench`` names and this machine can have.

    The list that is saved stays whole, so that no history of another machine hides.
    """

    compared: ClassVar[bool] = False
    """Whether commits will be compared: on a CPU, seconds of one code differ by a factor of two from run to run."""

    @classmethod
    def discover(cls, *given: Any, regex: Any = None, **named: Any) -> Any:
        """Discover all, select some, and tell the process that measures what they need."""
        found = super().discover(*given, regex=regex, **named)
        device = find("auto")
        picked = pick(device, [regex] if isinstance(regex, str) else regex or [])
        absolute = ABSOLUTE if cls.compared and device.kind is DeviceKind.CPU else ()
        places = {of.name: () if of.method in absolute else picked.places.get(of.name, ()) for of in live()}
        if not os.environ.get(SWEPT_FOLDER):
            places |= {benchmark.name: () for benchmark in swept()}
        for name in places.keys() & found.keys():
            found.benchmark_selection[name] = list(places[name])
            if not places[name]:
                del found[name]
        os.environ[LIVE_KEYS] = json.dumps(sorted(picked.questions))
        here = f"{device.name} ({device.kind}; {cuda_missing()})" if device.kind is DeviceKind.CPU else device.name
        reasons = "; ".join(f"{', '.join(names)} ({why})" for why, names in picked.left_out.items()) or "nothing"
        log.info(f"{here}: {picked.values:,} of the live set's {picked.total:,} values; left out: {reasons}")
        if absolute:
            log.info(f"{', '.join(absolute)} are not compared on a CPU: nothing is timed beside them")
        return found


def compact(format_result: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Give a function in the place of asv's: a line for each row that has a value, and no rules between them."""

    def formatted(results: Any, benchmark: Any) -> tuple[str, str]:
        name, unit, params = benchmark["name"], benchmark["unit"], benchmark["params"]
        values, stats = results.get_result_value(name, params), results.get_result_stats(name, params)
        if unit == "ratio":
            values = [value and float(f"{value:.4g}") for value in values]
        cells = [
            util.human_value(value, unit, err=get_err(value, of) if of else None)
            for value, of in zip(values, stats, strict=True)
        ]
        tables = [_table(benchmark["param_names"], params, cells, across) for across in range(1, len(params))]
        lines = [table for table in tables if max(map(len, table)) <= _WIDEST][-1:] or tables[:1]
        failed = [results.stderr[name]] if None in values and results.stderr.get(name) else []
        return format_result(results, benchmark)[0], "\n".join([*lines[0], *failed])

    return formatted


def _table(names: Sequence[str], params: Sequence[Sequence[str]], cells: Sequence[str], across: int) -> list[str]:
    """Give the lines of a table that has a column for each combination of the last ``across`` parameters."""
    columns = [" / ".join(of) for of in product(*params[-across:])]
    table = [[*names[:-across], *columns]]
    for place, row in enumerate(product(*params[:-across])):
        here = cells[place * len(columns) :][: len(columns)]
        table += [[*row, *here]] if set(here) != {_NA} else []
    held = [column for column in zip(*table, strict=True) if set(column[1:]) != {_NA}]
    told = [[cell.replace("'", "") for cell in column] for column in held]
    padded = [[cell.ljust(max(map(len, column)) + 2) for cell in column] for column in told]
    return ["".join(row).rstrip() for row in zip(*padded, strict=True)]
