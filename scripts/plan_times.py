"""Measure what a person waits for beside products: new values of A, and the loading of a saved operator.

    python scripts/plan_times.py
    python scripts/plan_times.py --device cuda --use direct --use sparsetir

Each line is milliseconds, the median of all rounds and the least. The first call of each is left out: it finds where
plans keep the values, and compiles.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
from scipy import sparse

import spmark


def main() -> None:
    """Write two lines for each implementation."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--use", action="append", help="an implementation (default: scipy_cpu, or direct on a GPU)")
    parser.add_argument("--rows", type=int, default=65_536)
    parser.add_argument("--nnz", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=50)
    asked = parser.parse_args()
    xp: Any = np
    if asked.device == "cuda":
        import cupy as xp
    rng = np.random.default_rng(0)
    density = asked.nnz / asked.rows**2
    a = sparse.random_array((asked.rows, asked.rows), density=density, rng=rng, dtype=np.float32, format="csr")
    values = xp.asarray(rng.standard_normal(a.nnz, dtype=np.float32))
    b = xp.asarray(rng.standard_normal((asked.rows, 32), dtype=np.float32))
    for use in asked.use or ["direct" if asked.device == "cuda" else "scipy_cpu"]:
        op = spmark.compile(a, width=32, use=use, device=asked.device)
        op(b)
        with TemporaryDirectory() as folder:
            saved = Path(folder) / "operator"
            op.save(saved)
            update = milliseconds(partial(op.update_values, values), asked)
            load = milliseconds(partial(spmark.load, saved), asked)
        for what, times in (("update_values", update), ("load", load)):
            sys.stdout.write(f"{use:20} {what:16} {median(times):8.3f} ms, at least {min(times):8.3f} ms\n")


def milliseconds(call: Callable[[], object], asked: argparse.Namespace) -> list[float]:
    """Time a call and what it has enqueued, after a call that is left out."""
    times = []
    for _ in range(asked.rounds + 1):
        started = perf_counter()
        call()
        if asked.device == "cuda":
            import cupy

            cupy.cuda.Device().synchronize()
        times.append((perf_counter() - started) * 1e3)
    return times[1:]


if __name__ == "__main__":
    main()
