"""Plan a product with one sparse matrix, use it many times, change its values, and keep it in a file.

Run: ``python examples/multiply.py [MATRIX.mtx] [--width 64] [--use auto]``; without a file the matrix is drawn.

It writes the operator's own account: what was chosen, what it cost, and how it compares with the baseline. Where there
is a GPU, the product is computed there.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
from scipy import sparse
from scipy.io import mmread

import spmark


def main() -> None:
    """Multiply, and hold every result against SciPy's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("matrix", nargs="?", type=Path, help="a MatrixMarket file; default: 2,000 x 2,000, drawn")
    parser.add_argument("--width", type=int, default=64, help="J, columns of the dense operand (default: 64)")
    parser.add_argument("--use", default="auto", help="an implementation's name (default: a race of several)")
    asked = parser.parse_args()

    rng = np.random.default_rng(0)
    drawn = sparse.random_array((2000, 2000), density=0.01, rng=rng)
    a = sparse.csr_array(mmread(asked.matrix) if asked.matrix else drawn).astype(np.float32)
    b = rng.standard_normal((a.shape[1], asked.width)).astype(np.float32)

    # Once: no search, and the result has the kind of b (NumPy, CuPy or PyTorch).
    np.testing.assert_allclose(spmark.spmm(a, b), a @ b, rtol=1e-3, atol=1e-3)

    # Many times: the operator is planned for the matrix, the width and the device.
    op = spmark.compile(a, width=asked.width, use=asked.use, budget_s=30)
    sys.stdout.write(op.explain() + "\n")
    c = np.empty((a.shape[0], asked.width), np.float32)
    op(b, out=c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-3, atol=1e-3)

    # New values for the same pattern need no search.
    a.sum_duplicates()
    a.data *= 2
    op.update_values(a.data)
    np.testing.assert_allclose(op(b), a @ b, rtol=1e-3, atol=1e-3)

    # A saved operator is planned again without a search.
    with tempfile.TemporaryDirectory() as folder:
        op.save(Path(folder) / "mine.op")
        again = spmark.load(Path(folder) / "mine.op")
    np.testing.assert_allclose(again(b), a @ b, rtol=1e-3, atol=1e-3)
    sys.stdout.write("all products agree with SciPy's\n")


if __name__ == "__main__":
    main()
