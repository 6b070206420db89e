"""Which model scores the configs of a platform: a person's own one in the cache, else the published one."""

from __future__ import annotations

from pathlib import Path

from spmark.impls.core.errors import BuildError
from spmark.impls.core.files import cache_root
from spmark.impls.core.problem import Op
from spmark.impls.dash.parameters import OwnParameters
from spmark.impls.dash.score import DashScores
from spmark.impls.dash.weights import Subject, load
from spmark.impls.tuning.platform import Platform

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


def platform_scores(platform: Platform, op: Op, device: str = "cpu") -> DashScores:
    """Give the scores of the platform's model.

    Parameters
    ----------
    platform : Platform
    op : Op
    device : str
        PyTorch's name of the device that computes the scores.

    Raises
    ------
    BuildError
        There is no model, its file is damaged or of another platform, operator or space, or its encoder reads other
        numbers than the platform's own parameters, as that of WACO with augmented features does.
    UnsupportedError
        PyTorch or safetensors is not installed.
    """
    path = find_model(platform.name, op)
    if path is None:
        raise BuildError(
            f"expected a model of {op} on {platform.name} at {own_model(platform.name, op)}, found none: "
            f"{how_made(platform.name, op)}"
        )
    own = OwnParameters(platform.own_axes(op))
    subject = Subject(platform=platform.name, op=op, space_digest=platform.digest(op), parameters_digest=own.digest)
    model = load(path, subject, device)
    if (found := model.encoder.maps[0][0].shape[0]) != own.size:
        raise BuildError(
            f"{path}: expected an encoder of the platform's {own.size} own parameters, found one of {found}"
        )
    return DashScores(model, platform, own)
