"""Operands of more than 2^31 elements: rows of B and Y whose offsets 32 bits do not hold."""

from __future__ import annotations

from importlib import import_module

import psutil
import pytest

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.problem import Op
from spmark.impls.runtime.device import find
from spmark.impls.table import IMPLEMENTATIONS, create
from spmark.suite.conformance import Place, check_offsets

TWO_GRIDS, NEEDED = ("rode",), 40 << 30
"""Whose grids run at a time in the host ring, which holds an operand of 8 GiB for each; 24 GB did not suffice."""


def runs_on_the_host(name: str) -> bool:
    module, _, label = IMPLEMENTATIONS[name].partition(":")
    return DeviceKind.HOST_SIMT in getattr(import_module(module), label).devices


@pytest.mark.one_in(4)
@pytest.mark.parametrize("op", Op)
@pytest.mark.parametrize("name", list(filter(runs_on_the_host, IMPLEMENTATIONS)))
def test_rows_beyond_32_bits(name: str, op: Op) -> None:
    if name in TWO_GRIDS and psutil.virtual_memory().available < NEEDED:
        pytest.skip(f"{name}: its two grids at a time take more than 24 GB of memory in the host ring")
    reason = check_offsets(create(name), op, Place(find("host-simt")))
    if reason is not None:
        pytest.skip(f"{name}: {reason}")
