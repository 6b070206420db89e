"""Encoders are fitted in few steps: these tests look at what surrounds them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def few_steps() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spmark.impls.dash.encoders._STEPS", 20)
        yield
