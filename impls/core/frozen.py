"""The base of data that enter or leave as bytes: sweeps, records, models, messages, claims."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """Immutable data that refuse unknown keys, so that a misspelt key is an error and is not ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
