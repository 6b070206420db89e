"""Run every implementation for GPUs on tiny problems under compute-sanitizer, and tabulate what each tool says.

    python scripts/sanitize.py --out sanitized.jsonl
    python scripts/sanitize.py --only sparsetir --tools racecheck --parts 12

``plain`` stands for the kernels of float64, which serve the public API and no implementation.

Every pair of a tool and an implementation is a process of its own, without CuPy's pool, so that an access past an array
is an access past an allocation. An implementation with a long search has a process for each part of the problems, and
the parts take turns on the GPUs that CUDA_VISIBLE_DEVICES names. Searches time nothing here, because the suite's gate
waits for the host and the tools run one kernel at a time. Each candidate runs once and is checked. A tool that the
machine refuses is "not run", and never "0 findings".
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import UnsupportedError
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.core.relational import RelationalCsr, RelationalProblem
from spmark.impls.kernels.plain import PlainPlan
from spmark.impls.operator.choose import PLAIN
from spmark.impls.operator.matrices import OwnedMatrix
from spmark.impls.runtime.device import find
from spmark.impls.runtime.target import open_target
from spmark.impls.runtime.timing import Run, Stopwatch
from spmark.impls.table import IMPLEMENTATIONS, RELATIONAL, create

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
_STATUSES = ("no plan", "clean", "not run", "failed", "findings")
"""From the best to the worst."""
_DONE = "plans were run and are right"
"""The last words of an inner process."""
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")
_WIDTHS = (20, 32, 64)
_OPERATORS = ((Op.SPMM, False), (Op.SDDMM, False), (Op.SDDMM, True))
_SEED = 7


@dataclass(frozen=True)
class Outcome:
    """What one tool said of one implementation."""

    tool: str
    implementation: str
    status: str
    """``clean``, ``findings``, ``not run``, ``failed``, or ``no plan`` where every problem is refused."""
    findings: int
    plans: int
    said: str
    """The first lines of the findings, or why nothing was run."""


def tiny_matrices() -> list[Any]:
    """Draw a matrix with empty, short and long rows, and one of blocks."""
    random = np.random.default_rng(_SEED)
    uneven = np.zeros((48, 70), bool)
    for row, length in enumerate(random.integers(0, 9, 48)):
        uneven[row, random.choice(70, length, replace=False)] = True
    uneven[5], uneven[7:11] = True, False
    blocked = np.kron(random.random((3, 4)) < 0.6, np.ones((16, 16), bool))
    return [sparse.csr_array(pattern * random.uniform(0.5, 1, pattern.shape)) for pattern in (uneven, blocked)]


def tiny_relations() -> list[RelationalCsr]:
    """Draw a graph of five relations with a hub, and a map, in which a relation reaches a row once."""
    random = np.random.default_rng(_SEED)
    relation, rows, cols = (random.integers(0, end, 300) for end in (5, 48, 70))
    rows[:90] = 7
    graph = RelationalCsr.of_edges((48, 70), 5, (relation, rows, cols), random.uniform(0.5, 1, 300))
    offset, rows = np.nonzero(random.random((27, 90)) < 0.1)
    return [graph, RelationalCsr.of_edges((90, 70), 27, (offset, rows, random.integers(0, 70, rows.size)))]


def tiny_problems(name: str) -> list[Any]:
    """Make problems of every operator and type of an implementation, with J that tiles divide and do not divide."""
    if name == PLAIN:
        kinds = product(tiny_matrices(), _WIDTHS, _OPERATORS)
        return [OwnedMatrix.of(matrix, "float64").problem(op, J, scaled) for matrix, J, (op, scaled) in kinds]
    if name in RELATIONAL:
        relational = product(tiny_relations(), _WIDTHS, DType)
        return [RelationalProblem(matrix, width, width + 4, dtype) for matrix, width, dtype in relational]
    every = product(tiny_matrices(), _WIDTHS, DType, _OPERATORS)
    return [Problem(op, matrix, width, dtype, scaled) for matrix, width, dtype, (op, scaled) in every]


def run_inside(name: str, part: int, parts: int) -> int:
    """Build and check one implementation's plans of every ``parts``-th problem; give their number."""
    import cupy

    from spmark.impls.runtime import cudalab

    class Once(Stopwatch):
        """A stopwatch without a gate: each run is made once, and all get the same time."""

        def __init__(self, *_: object) -> None:
            pass

        def batch(self, runs: Sequence[Run], rounds: int, cold: bool) -> NDArray[np.float64]:
            for run in runs:
                run()
            cupy.cuda.Device().synchronize()
            return np.ones((len(runs), rounds))

        def state(self) -> tuple[float, list[str]]:
            return 0.0, []

    cudalab.CudaStopwatch = Once
    from spmark.impls.tuning.timer import PlanTimer  # takes the stopwatch by its name

    cupy.cuda.set_allocator(None)
    cupy.cuda.set_pinned_memory_allocator(None)
    device, plans, problems = find("cuda"), 0, tiny_problems(name)[part::parts]
    if name == PLAIN:
        return check_plain(device, problems)
    for problem in problems:
        implementation = create(name)
        with suppress(UnsupportedError):
            if problem.op in implementation.ops and implementation.unsupported(problem, device) is None:
                PlanTimer(problem, device, _SEED).check(implementation.build(problem, device))
                plans += 1
    return plans


def check_plain(device: DeviceSpec, problems: Sequence[Any]) -> int:
    """Run the plain kernels and hold them against the host's loops; give the number of problems.

    Raises
    ------
    AssertionError
        A result differs by more than rounding explains.
    """
    target, random = open_target(device), np.random.default_rng(_SEED)
    for problem in problems:
        drawn = [random.uniform(0.5, 1, shape) for shape in problem.operand_shapes]
        expected, out = np.empty(problem.out_shape, problem.dtype), target.empty(problem.out_shape, problem.dtype)
        create("scipy_cpu").build(problem, find("cpu")).run(drawn, expected)
        PlainPlan(problem, target).run([target.upload(one) for one in drawn], out)
        target.synchronize()
        np.testing.assert_allclose(target.download(out), expected, rtol=1e-13)
    return len(problems)


def sanitize(tool: str, name: str, limit_s: int, part: int = 0, parts: int = 1) -> Outcome:
    """Run one implementation under one tool, on every ``parts``-th problem."""
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    inside = [sys.executable, __file__, "--inside", name, "--part", str(part), "--parts", str(parts)]
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpus[part % len(gpus)]} if gpus[0] else None
    try:
        done = subprocess.run(
            [sanitizer, "--tool", tool, "--error-exitcode", "86", "--print-limit", "3", *inside],
            capture_output=True, text=True, timeout=limit_s, check=False, env=environment,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Outcome(tool, name, "not run", 0, 0, f"it did not end within {limit_s} s")
    except OSError as error:
        return Outcome(tool, name, "not run", 0, 0, str(error)[:500])
    text = done.stdout + done.stderr
    counts, ran = _SUMMARY.search(text), re.search(rf"(\d+) {_DONE}", text)
    findings, plans = int(counts[1]) if counts else 0, int(ran[1]) if ran else 0
    if ran is None or counts is None:
        # A traceback of Python says that the tool let the process begin.
        status = "failed" if "Traceback" in text or findings else "not run"
        return Outcome(tool, name, status, findings, plans, text[-800:])
    if not plans:
        return Outcome(tool, name, "no plan", findings, 0, "every problem is refused, or a package is missing")
    said = "\n".join(line for line in text.splitlines() if line.startswith("========="))[:2000] if findings else ""
    return Outcome(tool, name, "findings" if findings else "clean", findings, plans, said)


def joined(outcomes: Sequence[Outcome]) -> Outcome:
    """Make one outcome of the parts of a tool and an implementation: the worst status, all findings and all plans."""
    worst = max(outcomes, key=lambda outcome: _STATUSES.index(outcome.status))
    findings, plans = (sum(getattr(outcome, name) for outcome in outcomes) for name in ("findings", "plans"))
    return replace(worst, findings=findings, plans=plans)


def names_for_gpus() -> list[str]:
    """List the implementations for GPUs, those of RGMS, and the plain kernels."""
    made: dict[str, Any] = {name: create(name) for name in (*IMPLEMENTATIONS, *RELATIONAL)}
    return [*(name for name, one in made.items() if DeviceKind.CUDA in one.devices), PLAIN]


def main() -> None:
    """Run the tools that the command line names; exit with 1 after findings or a failed implementation."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=TOOLS)
    parser.add_argument("--only", nargs="+", default=[], help="implementations, or plain; by default all for GPUs")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--limit-s", type=int, default=300)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--parts", type=int, default=1, help="processes of a tool and an implementation")
    parser.add_argument("--part", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        sys.stdout.write(f"{run_inside(args.inside, args.part, args.parts)} {_DONE}\n")
        return

    with ThreadPoolExecutor(args.jobs) as threads:
        pairs = [(tool, name) for name in args.only or names_for_gpus() for tool in args.tools]
        jobs = [(*pair, args.limit_s, part, args.parts) for pair in pairs for part in range(args.parts)]
        parts = list(threads.map(lambda job: sanitize(*job), jobs))
    outcomes = [joined(parts[first : first + args.parts]) for first in range(0, len(parts), args.parts)]
    for one in outcomes:
        said = f"{one.status} {one.findings or ''}"
        sys.stdout.write(f"{one.implementation:22} {one.tool:10} {said} {one.plans} plans\n")
    if args.out:
        args.out.write_text("".join(json.dumps(asdict(one)) + "\n" for one in outcomes), encoding="utf-8")
    sys.exit(any(one.status in {"findings", "failed"} for one in outcomes))


if __name__ == "__main__":
    main()
