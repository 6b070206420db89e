"""What ``asv.conf.json`` names: airspeed velocity calls `setup` before a command begins, and finds our environment.

Airspeed velocity tells benchmarks neither the machine nor what ``--bench`` names. They read both from a variable of the
environment (`tracked.LIVE`), so that they measure and print what this machine can have and ask for what is named alone.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from asv.benchmarks import Benchmarks
from asv.config import Config
from asv.console import log

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.machine import LoadMeter
from spmark.impls.runtime.device import find
from spmark.impls.table import reach_of
from spmark.suite.asv.environment import WheelEnvironment
from spmark.suite.asv.series import live, questions_of, swept, write_list
from spmark.suite.benchmarks.tracked import LIVE, LiveSpmm, questions

__all__ = ["WheelEnvironment", "setup"]
BUILDS = ("track_build", "track_search", "track_phase")
"""Seconds of work on the host."""
ABSOLUTE = ("track_time", "track_regret", *BUILDS)
"""What a CPU is not followed by: where other work shares the cores, seconds of one code differ by a factor of two."""
RATIOS = ("track_build_cpu_ratio", "track_cpu_ratio")
"""What the host computed, over a baseline beside it."""
_WATCHED_S = 0.5


def setup() -> None:
    """Prepare a command: the list of benchmarks for one that reads it, the variable for one that measures.

    A run writes the list of what its machine has. Before a site is published, that of all machines takes its place.
    """
    # asv prints the messages of all loggers without their arguments.
    logging.getLogger("spmark").setLevel(logging.WARNING)
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config")
    parser.add_argument("--bench", "-b", action="append", default=[])
    given, rest = parser.parse_known_args()
    results = Path(Config.load(given.config).results_dir)
    if Path(Benchmarks.get_benchmark_file_path(results)).exists():
        write_list(results, [*swept(), *live()] if "publish" in rest else swept())
    if {"run", "continuous"} & set(rest):
        os.environ[LIVE] = json.dumps(_live(find("auto"), given.bench, compared="continuous" in rest))


def _live(device: DeviceSpec, patterns: Sequence[str], compared: bool) -> dict[str, Any]:
    """Give what benchmarks have to know, and say in one line what is left out."""
    on_cpu, load = device.kind is DeviceKind.CPU, LoadMeter().read(_WATCHED_S)
    methods = [*ABSOLUTE] if on_cpu else []
    if compared and load.busy:
        methods += [*RATIOS, "track_ratio"] if on_cpu else [*RATIOS, *BUILDS]
        log.warning(f"This machine is busy: {load}; {', '.join(methods)} are not compared")
    names, left_out = [], dict[str, list[str]]()
    for name in LiveSpmm.params[0]:
        if why := reach_of(name).unmet([device.kind]):
            left_out.setdefault(why, []).append(name)
        else:
            names.append(name)
    reasons = "; ".join(f"{', '.join(found)} ({why})" for why, found in left_out.items()) or "nothing"
    log.info(f"{device.name} ({device.kind}): {', '.join(names)} are measured; left out: {reasons}")
    wanted = set(questions_of(patterns, methods))
    asked = [key for key, of in questions() if key in wanted and of.get("implementation") in {None, *names}]
    return {"device": device.kind, "implementations": names, "left_out": methods, "questions": asked}
