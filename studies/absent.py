"""Searches for a GPU that may be absent, by the names that regression tracking asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from spmark.impls.core.problem import Problem
from spmark.impls.liteform.absent import buckets_h200, build_h200
from spmark.impls.stile.absent import a100

SEARCHES: Mapping[str, Callable[[Problem], float | None]] = {
    "stile_a100": a100,
    "liteform_build_h200": build_h200,
    "liteform_h200": buckets_h200,
}
"""Each gives the predicted seconds of the chosen config, or None."""
