"""The snippets of docs/products.md run as they stand."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from spmark.impls.operator import sparse

pytestmark = pytest.mark.full

PAGE = Path(__file__).parents[2] / "docs/products.md"


def snippets() -> dict[str, list[str]]:
    """Give the blocks of Python of each section, by the section's title."""
    _, *sections = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {part.split("\n", 1)[0]: re.findall(r"^```python\n(.*?)^```", part, re.M | re.S) for part in sections}


def test_examples_of_docstrings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path))
    found = doctest.testmod(sparse)
    assert found.attempted
    assert not found.failed


def run(title: str) -> None:
    (block,) = snippets()[title]
    exec(compile(block, f"{PAGE.name}, {title}", "exec"), {})


def test_scipy() -> None:
    run("SciPy and NumPy")


@pytest.mark.gpu
def test_cupy() -> None:
    run("CuPy")


def test_pytorch() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    run("PyTorch")


def test_an_implementation() -> None:
    run("An implementation as it is")


def test_no_snippet_is_left_out() -> None:
    assert [title for title, blocks in snippets().items() if blocks] == [
        "SciPy and NumPy",
        "CuPy",
        "PyTorch",
        "An implementation as it is",
    ]
