"""Kernel tables: what may be asked for, and how it is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from spmark.impls.core.errors import BuildError
from spmark.impls.runtime.template import KernelTemplate

TEMPLATE = KernelTemplate(
    Path("kernel.cu"),
    "kernel",
    {"T": ("float", "half"), "vector": (1, 8), "scaled": (False, True), "threads": (64,)},
    legal=lambda values: values["T"] == "half" or int(values["vector"]) < 8,
)


def test_the_table_is_every_legal_combination() -> None:
    expressions = [i.expression for i in TEMPLATE.instances()]
    assert len(expressions) == len(set(expressions)) == 6
    assert "kernel<half, 8, true, 64>" in expressions
    assert not any("float, 8" in e for e in expressions)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"T": "half", "vector": 8, "scaled": False}, "expected template arguments T, vector, scaled, threads"),
        ({"T": "double", "vector": 1, "scaled": False, "threads": 64}, "expected T out of"),
        ({"T": "float", "vector": 8, "scaled": False, "threads": 64}, "not legal"),
    ],
)
def test_what_is_not_in_the_table_is_refused(values: dict, words: str) -> None:
    with pytest.raises(BuildError, match=words):
        TEMPLATE.instance(**values)


def test_a_template_says_its_block_size() -> None:
    with pytest.raises(ValueError, match="threads"):
        KernelTemplate(Path("kernel.cu"), "kernel", {"T": ("float",)})
