"""Search one problem with several seeds, and say how far the chosen plans' times lie apart.

A seed draws the operands of a search and the order in which its candidates take turns. Each search starts without
remembered plans; compiled kernels stay. The chosen plans are then timed together, by turns, from a cold cache. The
answer is one line of JSON.

    python examples/search_spread.py sparsetir planetoid/cora --op sddmm --seeds 5
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from typing import Any

import numpy as np

from spmark.datasets.cache import Cache
from spmark.datasets.load import load_matrix
from spmark.datasets.sweep.model import MatrixSpec
from spmark.datasets.sweep.reading import parse_matrix
from spmark.impls.core.digest import implementation_version
from spmark.impls.core.files import cache_folder
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.runtime.device import find
from spmark.impls.table import create, module_of
from spmark.impls.tuning.timer import PlanTimer

_ROUNDS = 5
"""Times that the chosen plans are timed together; the median of the medians counts."""


def build(name: str, problem: Problem, device: Any, seed: int) -> Plan:
    """Search with a seed and without remembered plans."""
    shutil.rmtree(cache_folder().parent / "plans", ignore_errors=True)
    unseeded = PlanTimer.__init__

    def seeded(self: PlanTimer, problem: Problem, device: Any, _: int = 0) -> None:
        unseeded(self, problem, device, seed)

    PlanTimer.__init__ = seeded
    try:
        return create(name).build(problem, device)
    finally:
        PlanTimer.__init__ = unseeded


def main() -> None:
    """Search what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("implementation")
    parser.add_argument("matrix", help="source/name, or a file")
    parser.add_argument("--op", type=Op, choices=list(Op), default=Op.SPMM)
    parser.add_argument("--width", type=int, default=128, help="J")
    parser.add_argument("--dtype", type=DType, choices=list(DType), default=DType.FLOAT32)
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()

    spec = MatrixSpec.model_validate(parse_matrix(args.matrix))
    problem = Problem(args.op, load_matrix(spec, Cache.default(), 0).csr, args.width, args.dtype)
    device = find("cuda")
    plans = [build(args.implementation, problem, device, seed) for seed in range(args.seeds)]
    timer = PlanTimer(problem, device)
    rounds = [[float(np.median(samples)) for samples in timer.alternating_us(plans)] for _ in range(_ROUNDS)]
    times = np.median(rounds, axis=0)
    line = {
        "implementation": args.implementation,
        "implementation_version": implementation_version(module_of(args.implementation)),
        "matrix": spec.id,
        "op": str(args.op),
        "width": args.width,
        "dtype": str(args.dtype),
        "device": device.name,
        "median_us": [round(float(time), 3) for time in times],
        "deviation": round(float(times.std(ddof=1) / times.mean()), 5),
        "range": round(float(times.max() / times.min() - 1), 5),
        "configs": [dict(plan.config) for plan in plans],
    }
    sys.stdout.write(json.dumps(line, default=str) + "\n")


if __name__ == "__main__":
    main()
