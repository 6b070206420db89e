"""Texts of frames, kept alike whether PyArrow is installed or not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pandas as pd


@contextmanager
def python_texts() -> Iterator[None]:
    """Let pandas keep the texts of new frames as Python's own; also a decorator.

    With PyArrow installed, pandas keeps texts as PyArrow does. A report walks over texts value by value, which takes
    longer there, and joins with empty frames fail (pandas 3.1, PyArrow 26).
    """
    with pd.option_context("mode.string_storage", "python"):
        yield
