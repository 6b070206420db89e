"""``spmark show``: what names a matrix, and what is said of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from spmark.impls.core.errors import DatasetError
from spmark.suite.cli import main as cli
from spmark.suite.cli.matrix import matrix_spec


@pytest.fixture
def file(tmp_path):
    matrix = sparse.random_array((40, 30), density=0.1, format="csr", rng=np.random.default_rng(0))
    matrix.sort_indices()
    sparse.save_npz(tmp_path / "mine.npz", matrix.astype(np.float32))
    return tmp_path / "mine.npz"


@pytest.mark.parametrize(
    ("matrix", "arguments", "message"),
    [
        ("cora", (), "expected a matrix as source/name, or a file that ends in .npz"),
        ("planetoit/cora", (), "did you mean planetoid"),
        ("rmat/a", ["scale"], "expected an argument as key=value, found 'scale'"),
    ],
)
def test_what_names_nothing_is_explained(matrix, arguments, message):
    with pytest.raises(DatasetError, match=message):
        matrix_spec(matrix, arguments)


def test_the_command_prints_statistics_and_writes_a_page(file, monkeypatch, capfd, tmp_path):
    monkeypatch.setattr(sys, "argv", ["spmark", "show", str(file), "--out", str(tmp_path / "out"), "--json"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    answer = json.loads(capfd.readouterr().out)
    assert (answer["statistics"]["num_rows"], answer["statistics"]["nnz"]) == (40, 120)
    page = Path(answer["page"])
    assert page.is_relative_to(tmp_path / "out")
    text = page.read_text()
    assert "gini row" in text
    assert answer["statistics"]["kind"] == "real"  # the file has values, though runs take seeded ones
    assert answer["statistics"]["self_loops"] is None and "self loops" not in text  # not a square matrix
