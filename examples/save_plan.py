"""Keep a planned product in a file, so that the next process plans nothing.

    python examples/save_plan.py
    python examples/save_plan.py

The first run lets implementations race and saves the operator, with its matrix and its choice. The second run loads the
file. Both print how long they took and compute the same product. Then new values for the old pattern are given to
the operator, which takes no search either.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import perf_counter

import numpy as np
from scipy import sparse

import spmark


def main() -> None:
    """Compile and save, or load; then multiply, and multiply again with other values."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path, default=Path("out/examples/product.op"))
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    a = sparse.random_array((2000, 1500), density=0.01, format="csr", dtype=np.float32, rng=rng)
    b = rng.standard_normal((1500, 64)).astype(np.float32)

    started, known = perf_counter(), args.file.exists()
    if known:
        op = spmark.load(args.file)
    else:
        op = spmark.compile(a, width=64, cache=False)
        args.file.parent.mkdir(parents=True, exist_ok=True)
        op.save(args.file)
    print(f"{'loaded' if known else 'compiled and saved'} in {perf_counter() - started:.3f} s: {op}")
    np.testing.assert_allclose(op(b), a @ b, rtol=1e-3, atol=1e-3)

    a.data *= 2
    op.update_values(a.data)
    np.testing.assert_allclose(op(b), a @ b, rtol=1e-3, atol=1e-3)


if __name__ == "__main__":
    main()
