"""Readers of compiled operators that people save."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from fuzz.harness import Target
from scipy import sparse

import spmark
from spmark.impls.operator import saved


def _operator(data: bytes, folder: Path) -> object:
    path = folder / "op"
    path.write_bytes(saved.sealed(data))
    return saved.parsed(path)


def _operator_file(data: bytes, folder: Path) -> object:
    path = folder / "op"
    path.write_bytes(data)
    return saved.parsed(path)


def _files() -> list[bytes]:
    """Save operators of both kinds and several types."""
    files = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "op"
        matrix = sparse.random_array((9, 7), density=0.3, rng=np.random.default_rng(0))
        for op, dtype in (("spmm", "float32"), ("sddmm", "float16"), ("spmm", "float64")):
            spmark.compile(matrix, op, width=3, dtype=dtype, use="scipy_cpu", device="cpu").save(path)
            files.append(path.read_bytes())
    return files


def _contents() -> list[bytes]:
    return [content.split(b"\n", 2)[2] for content in _files()]


TARGETS = [Target("operator", _operator, _contents), Target("operator_file", _operator_file, _files)]
