"""Readers of matrices and of what leads to them."""

from __future__ import annotations

from pathlib import Path

from fuzz.harness import Target

from spmark.datasets.sources.smtx import read_smtx


def smtx(data: bytes, folder: Path) -> object:
    (folder / "m.smtx").write_bytes(data)
    return read_smtx(folder / "m.smtx")


TARGETS = (Target("smtx", smtx, lambda: [b"3, 4, 3\n0 2 2 3\n1 3 0\n"]),)
