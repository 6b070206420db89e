"""Time every candidate of `auto` side by side on the GPU of this machine: rows that its selector learns from.

    python scripts/studies/auto_measure.py HALF FILE [SECONDS [SHARE OF]]

``HALF`` is ``tuning`` or ``judging``. Each of its graphs and layers is taken at J = 128 first, and then at one more
width, drawn for it. Candidates of a problem are built with their searches, are checked, and then are timed by
turns in one process. A row is appended to ``FILE`` for each problem; problems that have a row there are passed over, so
that the same command goes on. No problem is begun after so many seconds (450). Several processes share the work as
``SHARE`` 0, 1, ... ``OF`` n, each with a file of its own.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from spmark.datasets.cache import Cache
from spmark.datasets.load import load_matrix
from spmark.datasets.sweep.reading import packaged_lists, read_list
from spmark.impls.auto.portfolio import BASELINE, PORTFOLIO, Features
from spmark.impls.auto.race import Choice
from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import SpmarkError
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.operator.choose import device_of
from spmark.impls.tuning.timer import PlanTimer

_DTYPES = (DType.FLOAT32, DType.FLOAT16)


def problems(half: str, share: int, of: int) -> Iterator[tuple[str, Problem]]:
    """Give the problems of a half with their kind: J = 128 of all matrices first, of these graphs before layers."""
    cache, loaded = Cache.default(), dict[tuple[str, str], Csr]()
    kinds = {kind: read_list(packaged_lists()[f"{half}_{kind}"])[share::of] for kind in ("graphs", "layers")}
    drawn = np.random.default_rng(share)
    others = {kind: drawn.choice([32, 512], len(matrices)).tolist() for kind, matrices in kinds.items()}
    for at_128 in (True, False):
        for kind, matrices in kinds.items():
            for matrix, other in zip(matrices, others[kind], strict=True):
                key = (matrix.source, matrix.name)
                if key not in loaded:
                    loaded[key] = load_matrix(matrix, cache, 0).csr
                for op in Op if kind == "graphs" else (Op.SPMM,):
                    for dtype in _DTYPES:
                        yield kind, Problem(op, loaded[key], 128 if at_128 else other, dtype)


def measured(problem: Problem, device: DeviceSpec) -> dict[str, Mapping[str, float]]:
    """Build, check and time all candidates; give microseconds and seconds of building by name."""
    timer, plans, build_s = PlanTimer(problem, device), dict[str, Plan](), dict[str, float]()
    candidates: dict[str, Choice] = {**PORTFOLIO[problem.op], BASELINE.name: BASELINE}
    for name, choice in candidates.items():
        try:
            plan = choice.check(problem, device).build(problem, device)
            build_s[name] = sum(plan.phases_s.values()) - plan.phases_s.get("upload", 0.0)
            timer.check(plan)
            plans[name] = plan
        except (SpmarkError, MemoryError) as error:
            sys.stdout.write(f"{name}: {str(error)[:150]}\n")
    us = map(np.median, timer.alternating_us(list(plans.values())))
    return {"us": dict(zip(plans, us, strict=True)), "build_s": {name: build_s[name] for name in plans}}


def row_of(problem: Problem, half: str, device: DeviceSpec) -> dict[str, Any]:
    """Give what tells a problem from others, in the words of rows."""
    told = {name: float(f"{value:.6g}") for name, value in vars(Features.of(problem.matrix)).items()}
    row = {"pattern": problem.matrix.hash, "half": half, "op": str(problem.op), "dtype": str(problem.dtype)}
    return {**row, "width": problem.width, "gpu": device.name, "features": told}


def main(half: str, file: Path, seconds: float = 450, share: int = 0, of: int = 1) -> None:
    """Append a row for each problem that has none in the file."""
    ends, device = time.monotonic() + seconds, device_of("cuda")
    lines = file.read_text().splitlines() if file.exists() else []
    keys = ("pattern", "op", "dtype", "width")
    have = {tuple(row[key] for key in keys) for row in map(json.loads, lines)}
    for kind, problem in problems(half, share, of):
        row = row_of(problem, kind if half == "judging" else half, device)
        if tuple(row[key] for key in keys) in have:
            continue
        if time.monotonic() > ends:
            return
        times = {
            name: {key: float(f"{value:.4g}") for key, value in found.items()}
            for name, found in measured(problem, device).items()
        }
        with file.open("a") as out:
            out.write(json.dumps(row | times) + "\n")


if __name__ == "__main__":
    if len(sys.argv) not in {3, 4, 6} or sys.argv[1] not in {"tuning", "judging"}:
        raise SystemExit(__doc__)
    main(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:]))
