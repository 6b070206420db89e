"""The page of a matrix: its facts escaped, and its two figures with their data."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from spmark.impls.core.problem import Csr
from spmark.report.site.composition import matrix_report
from spmark.report.site.files import write_site


def test_the_page_of_a_matrix(tmp_path):
    matrix = sparse.random_array((50, 20), density=0.2, format="csr", rng=np.random.default_rng(0))
    matrix.sort_indices()
    csr = Csr.checked(matrix.shape, matrix.indptr, matrix.indices, matrix.data.astype(np.float32))
    index = write_site(matrix_report("some/<one>", [("nnz", "200")], csr), tmp_path)
    assert "some/&lt;one&gt;" in index.read_text()
    assert {path.name for path in (tmp_path / "figures").glob("*.csv")} == {"spy.csv", "degrees.csv"}
