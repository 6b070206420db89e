"""What a call asks of CuPy's arrays, without a GPU: the memory behind them is the host's and stays untouched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spmark.impls.core.errors import OperandError
from spmark.impls.operator.arrays import check_dtype, check_shape, library_of
from spmark.impls.operator.matrices import ElementType


@pytest.fixture
def array() -> Any:
    """Give a 5 x 8 array of float32 at an address that 16 divides."""
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    host = np.zeros(512, np.uint8)
    memory = cupy.cuda.UnownedMemory(-(-host.ctypes.data // 16) * 16, 256, host, 0)
    return cupy.ndarray((5, 8), np.float32, cupy.cuda.MemoryPointer(memory, 0))


def test_what_can_be_passed_as_it_is(array: Any) -> None:
    library, found = library_of(array, "B")
    assert found is array
    assert not library.on_host(array)
    assert not library.allocates_in_capture
    assert library.passable(array)
    assert library.passable(array[1:]), "rows of 32 bytes keep the address aligned"
    for view in (array.T, array[:, ::2], array.reshape(-1)[1:33].reshape(4, 8)):
        assert not library.passable(view)
    assert library.shown(array) is array


def test_what_differs_has_another_signature(array: Any) -> None:
    library, _ = library_of(array, "B")
    others = [array[1:], array.T, array.view(np.int32), array[:, ::2], array.reshape(-1)[1:33].reshape(4, 8)]
    signatures = {library.signature(one) for one in (array, *others)}
    assert len(signatures) == 6
    assert library.signature(array.view()) == library.signature(array)


def test_checks_read_facts_alone(array: Any) -> None:
    check_dtype(array, ElementType.FLOAT32, "B")
    check_shape(array, (5, None), "B")
    with pytest.raises(OperandError, match="B: expected dtype float16, found float32"):
        check_dtype(array, ElementType.FLOAT16, "B")
    with pytest.raises(OperandError, match=r"B: expected shape \(6, J\), found \(5, 8\)"):
        check_shape(array, (6, None), "B")
