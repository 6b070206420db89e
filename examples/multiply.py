"""Multiply a matrix of your own by dense matrices, with the kernel that is the fastest for it.

    python examples/multiply.py
    python examples/multiply.py mine.mtx --width 16

The script reads a MatrixMarket file, or draws a matrix where none is named. It computes one product without a search,
and then lets several implementations race for many products. It prints what was chosen, what the choice cost, and how
the choice compares with the baseline; all products are held against SciPy's. A GPU is used where there is one.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from scipy import sparse
from scipy.io import mmread

import spmark


def main() -> None:
    """Multiply, and hold every result against SciPy's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("matrix", nargs="?", type=Path, help="a MatrixMarket file; default: 2,000 x 2,000, drawn")
    parser.add_argument("--width", type=int, default=64, help="J, columns of the dense operand (default: 64)")
    parser.add_argument("--use", default="auto", help="an implementation's name (default: a race of several)")
    args = parser.parse_args()

    rng = np.random.default_rng(0)
    drawn = sparse.random_array((2000, 2000), density=0.01, rng=rng)
    a = sparse.csr_array(mmread(args.matrix) if args.matrix else drawn).astype(np.float32)
    b = rng.standard_normal((a.shape[1], args.width)).astype(np.float32)

    # Once: no search, and the result has the kind of b (NumPy, CuPy or PyTorch).
    np.testing.assert_allclose(spmark.spmm(a, b), a @ b, rtol=1e-3, atol=1e-3)

    # Many times: the operator is planned for the matrix, the width and the device.
    op = spmark.compile(a, width=args.width, use=args.use, budget_s=30)
    print(op.explain())
    c = np.empty((a.shape[0], args.width), np.float32)
    op(b, out=c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-3, atol=1e-3)
    print("all products agree with SciPy's")


if __name__ == "__main__":
    main()
