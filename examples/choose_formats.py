"""See what each system would choose for a matrix, for a GPU that this machine may lack.

    python examples/choose_formats.py

The matrices are a graph with a few long rows, a narrow band, and dense blocks. Three systems search each of them for an
H200, with their own cost models. The script prints a line for each choice: how the non-zeros are stored, the padding,
and the time that the system's own model predicts, where it predicts one. Nothing is measured, and times of different
models say little about each other. `spmark tune MATRIX` draws the choices, and measures where there is a GPU.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
from scipy import sparse

from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.runtime.device import shipped
from spmark.suite.tuned import foresee, ranked

ROWS = 2048


def main() -> None:
    """Foresee the choices for every matrix."""
    rng = np.random.default_rng(0)
    popular = (ROWS * rng.random((2, 20 * ROWS)) ** 3).astype(int)
    matrices = {
        "graph": sparse.coo_array((np.ones(20 * ROWS), tuple(popular)), shape=(ROWS, ROWS)),
        "band": sparse.diags_array(np.ones((5, ROWS)), offsets=range(-2, 3), shape=(ROWS, ROWS)),
        "blocks": sparse.kron(sparse.random_array((128, 128), density=0.02, rng=rng), np.ones((16, 16))),
    }
    rows = []
    for name, matrix in matrices.items():
        a = sparse.csr_array(matrix)
        a.sort_indices()
        csr = Csr.checked(a.shape, a.indptr, a.indices, a.data.astype(np.float32))
        problem = Problem(Op.SPMM, csr, width=64, dtype=DType.FLOAT32)
        for one in ranked(list(foresee(("stile", "sparsetir", "liteform"), problem, shipped("nvidia-h200"), 20))):
            held = Counter({part.name: part.nnz for part in one.stores.parts})
            most = ", ".join(f"{count / a.nnz:.0%} {store}" for store, count in held.most_common(3))
            rows.append((name, one.name, most, one.padding, one.time_us))
    columns = ["matrix", "system", "non-zeros, by store", "padding", "predicted us"]
    print(pd.DataFrame(rows, columns=columns).round(2).to_string(index=False, na_rep=""))


if __name__ == "__main__":
    main()
