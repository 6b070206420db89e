"""Which model scores the configs of a platform: a person's own one in the cache, else the published one."""

from __future__ import annotations

from pathlib import Path

from spmark.impls.core.files import cache_root
from spmark.impls.core.problem import Op

SHIPPED = Path(__file__).parent / "models"
"""Folder of the published models in a checkout. Where spmark is installed it holds their digests (`published.json`);
``spmark fetch models`` brings the models into the cache."""


def own_model(platform: str, op: Op) -> Path:
    """Give the path of this machine's own model of a platform and an operator; it may not exist."""
    return cache_root() / "models" / "dash" / f"{platform}-{op}.safetensors"


def find_model(platform: str, op: Op) -> Path | None:
    """Give the file of the own model, else of the published one here or in the cache, else None."""
    own = own_model(platform, op)
    places = (own.parent, SHIPPED, own.parent / "published")
    return next((path for place in places if (path := place / own.name).is_file()), None)


def why_missing(platform: str, op: Op) -> str:
    """Say that there is no model, and which commands bring or make one."""
    return (
        f"expected a model of {op} on {platform}, found none: bring the published ones with spmark fetch models, or "
        f"train one with spmark study train dash --source FILES --target FILES --op {op}, without --out, on samples of "
        f"spmark study collect, those of the target with --platform {platform}; it would be {own_model(platform, op)}"
    )
