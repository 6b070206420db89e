"""Every study by the implementation that it is of. Classes are imported on use."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from spmark.impls.core.errors import SweepError, none_of

CONTRACTS: Mapping[str, Mapping[str, str]] = {
    "labels": {
        "liteform": "spmark.studies.liteform.commands:FormatLabels",
        "lo_spmm": "spmark.studies.lo_spmm.commands:KernelLabels",
    },
    "predictors": {
        "liteform": "spmark.studies.liteform.commands:ForestTraining",
        "lo_spmm": "spmark.studies.lo_spmm.commands:RankTraining",
    },
    "transfer": {"dash": "spmark.studies.dash.commands:TransferTraining"},
    "published labels": {"liteform": "spmark.studies.liteform.commands:PublishedLabels"},
    "calibration": {
        "stile": "spmark.studies.stile.fitting:TileCalibration",
        "liteform": "spmark.studies.liteform.commands:ScheduleCalibration",
    },
}
"""What implementations offer beside plans, by the contracts of `spmark.studies.contracts`; imported on use."""


def find_contract(contract: str, name: str) -> Any:
    """Import what the implementation ``name`` offers by ``contract``, a key of `CONTRACTS`.

    Raises
    ------
    SweepError
        The implementation does not offer it; lists the implementations that do.
    """
    entry = CONTRACTS[contract].get(name)
    if entry is None:
        raise SweepError(none_of(f"a method with {contract}", name, CONTRACTS[contract]))
    module, _, kind = entry.partition(":")
    return getattr(import_module(module), kind)()
