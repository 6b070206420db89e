"""Types of elements: their names in every library, and which type holds which."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spmark.impls.core.errors import ProblemError
from spmark.impls.operator.matrices import ElementType

SMALL = {"bool", "int8", "uint8"}
HOLDS = {
    ElementType.FLOAT16: {"float16", *SMALL},
    ElementType.BFLOAT16: {"bfloat16", *SMALL},
    ElementType.FLOAT32: {"float16", "bfloat16", "float32", "int16", "uint16", *SMALL},
    ElementType.FLOAT64: {"float16", "bfloat16", "float32", "float64", "int16", "uint16", "int64", "uint64", *SMALL},
}


@pytest.mark.parametrize("kind", ElementType)
def test_a_type_holds_what_converts_safely(kind: ElementType) -> None:
    others = set().union(*HOLDS.values()) | {"complex64", "float8_e4m3fn", "float8_e5m2"}
    assert {other for other in others if kind.holds(other)} == HOLDS[kind]


def test_names_of_every_library(torch: Any) -> None:
    for kind in ElementType:
        assert ElementType.of(kind.value) is ElementType.of(getattr(torch, kind)) is kind
    assert ElementType.of(np.float32) is ElementType.of(np.dtype("f4")) is ElementType.FLOAT32


@pytest.mark.parametrize("given", ["single ", "int8", None, 3.5, "f4,f4", object])
def test_other_types_are_refused(given: Any) -> None:
    with pytest.raises(ProblemError, match="expected a dtype out of float16, bfloat16, float32, float64, found"):
        ElementType.of(given)
