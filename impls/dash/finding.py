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


def how_made(platform: str, op: Op) -> str:
    """Say which commands bring or make a model."""
    return (
        "bring the published ones with spmark fetch models, or train one with spmark study train dash --source FILES "
        f"--target FILES --op {op}, without --out, on samples of spmark study collect, those of the target with "
        f"--platform {platform}"
    )
