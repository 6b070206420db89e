"""Operands of more than 2^31 elements: rows of B and Y whose offsets 32 bits do not hold."""

from __future__ import annotations

from importlib import import_module

import pytest

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.problem import Op
from spmark.impls.runtime.device import find
from spmark.impls.table import IMPLEMENTATIONS, create
from spmark.suite.conformance import Place, check_offsets


def runs_on_the_host(name: str) -> bool:
    module, _, label = IMPLEMENTATIONS[name].partition(":")
    return DeviceKind.HOST_SIMT in getattr(import_module(module), label).devices


@pytest.mark.one_in(4)
@pytest.mark.parametrize("op", Op)
@pytest.mark.parametrize("name", list(filter(runs_on_the_host, IMPLEMENTATIONS)))
def test_rows_beyond_32_bits(name: str, op: Op) -> None:
    reason = check_offsets(create(name), op, Place(find("host-simt")))
    if reason is not None:
        pytest.skip(f"{name}: {reason}")
