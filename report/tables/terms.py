"""Words of reports that a reader may not know, with what they mean, for the places where they first stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_BEST = "_best"
"""How implementations are named that race a library's algorithms and keep the fastest."""
TWIN = "A twin is a seeded stand-in for the matrix that it is named after."


def explained(baseline: str) -> str:
    """Give the name of a baseline, and what it is where the name alone does not say so."""
    library = baseline.removesuffix(_BEST)
    return baseline if library == baseline else f"{baseline} (the fastest of {library}'s algorithms in the same run)"


def config_text(config: Mapping[str, Any]) -> str:
    """Give the entries of a config as one text."""
    return ", ".join(f"{key}={value}" for key, value in config.items())
