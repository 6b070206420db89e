"""PyTorch computes on one thread: the layers of these tests are small, and other tests run beside them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spmark.impls.core.errors import UnsupportedError
from spmark.impls.dash.withtorch import load_torch


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    try:
        torch = load_torch()
    except UnsupportedError:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
