"""The base of data that enter or leave as bytes: sweeps, records, models, messages, claims."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """Data that nothing changes, closed to unknown keys: a typing error is an answer and no ignored key."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
