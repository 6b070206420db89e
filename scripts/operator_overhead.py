"""Measure the host's time of a call of the public API, over that of the plan inside.

    python scripts/operator_overhead.py
    python scripts/operator_overhead.py --device cuda --use direct

The matrix is tiny, so that a GPU waits for the host. Each line is a way to call the same plan: microseconds of a call,
and what the call takes beyond ``plan.run`` on arrays of NumPy, or of CuPy on a GPU. Loops of all ways take turns, and
the fastest loop of each counts, because others on the machine only add time.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import numpy as np
import torch
from scipy import sparse

import spmark
from spmark.impls.operator.choose import build
from spmark.impls.operator.matrices import OwnedMatrix
from spmark.torch import SparseMatrix

ROWS, WIDTH, DENSITY = 64, 8, 0.05
BASE = "plan.run"
Ways = Mapping[str, Callable[[], object]]


def ways(device: str, use: str) -> Ways:
    """Give the calls by name, each of which has been made once.

    Parameters
    ----------
    device : {"cpu", "cuda"}
    use : str
        An implementation's name.
    """
    if device == "cuda":
        import cupy as xp
    else:
        xp = np
    rng = np.random.default_rng(0)
    a = sparse.random_array((ROWS, ROWS), density=DENSITY, rng=rng, dtype=np.float32)
    op = spmark.compile(a, width=WIDTH, use=use, device=device)
    b = xp.asarray(rng.standard_normal((ROWS, WIDTH), dtype=np.float32))
    out = xp.empty((ROWS, WIDTH), np.float32)
    plan = build(OwnedMatrix.of(a).problem(op.op, WIDTH, scaled=False), op.device, use).plan
    matrix = SparseMatrix(a, width=WIDTH, use=use, device=device)
    values = matrix.values.to(device)
    recorded_values = values.clone().requires_grad_()
    tensor, recorded, result = torch.as_tensor(b), torch.as_tensor(b).requires_grad_(), torch.as_tensor(out)
    made: dict[str, Callable[[], object]] = {
        BASE: lambda: plan.run((b,), out),
        "op(b, out=)": lambda: op(b, out=out),
        "op(b)": lambda: op(b),
        "op(tensor, out=)": lambda: op(tensor, out=result),
        "op(tensor)": lambda: op(tensor),
        "torch operator": lambda: matrix.spmm(tensor),
        "torch operator, values given": lambda: matrix.spmm(tensor, values),
        "torch operator, with autograd": lambda: matrix.spmm(recorded),
        "with autograd, values given": lambda: matrix.spmm(recorded, recorded_values),
    }
    if device == "cuda":
        made["plan.run of tensors"] = lambda: plan.run((tensor,), result)
    return made


def fastest_us(calls: Ways, rounds: int, loop: int, wait: Callable[[], object]) -> dict[str, float]:
    """Give microseconds of a call in the fastest of ``rounds`` loops of ``loop`` calls."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            started = perf_counter()
            for _ in range(loop):
                call()
            best[name] = min(best[name], (perf_counter() - started) / loop * 1e6)
            wait()
    return best


def main() -> None:
    """Write a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--use", help="an implementation (default: scipy_cpu, or direct on a GPU)")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--loop", type=int, default=50, help="calls of a loop; on a GPU they are enqueued")
    parser.add_argument("--json", action="store_true", help="write one line of JSON")
    asked = parser.parse_args()
    calls = ways(asked.device, asked.use or ("direct" if asked.device == "cuda" else "scipy_cpu"))
    wait: Callable[[], Any] = torch.cuda.synchronize if asked.device == "cuda" else lambda: None
    with torch.no_grad():
        for call in calls.values():
            call()
    found = fastest_us(calls, asked.rounds, asked.loop, wait)
    if asked.json:
        sys.stdout.write(json.dumps({"device": asked.device, "us": found}) + "\n")
        return
    for name, us in found.items():
        sys.stdout.write(f"{name:32} {us:7.2f} us {us - found[BASE]:+8.2f} us\n")


if __name__ == "__main__":
    main()
