"""Records of cases that end without a result: written by the runner for what a bench could not say itself.

A case that a device cannot run needs no matrix to be loaded, and a case that killed its process cannot speak.
"""

from __future__ import annotations

from typing import Any

from spmark.datasets.sweep import Case
from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.digest import implementation_version
from spmark.impls.core.record import Measurement, Status
from spmark.impls.table import package


def make_row(
    case: Case, device: DeviceSpec, environment: str, status: Status, reason: str = "", **facts: Any
) -> Measurement:
    """Give the record of ``case``: its identity, how it ended, and the ``facts`` that are known.

    Parameters
    ----------
    case : Case
        What was asked for.
    device : DeviceSpec
        What ran it, or should have.
    environment : str
        Digest of the row in ``environments.jsonl``.
    status : Status
        How it ended.
    reason : str
        Required unless the status is ok.
    **facts
        Further fields of `Measurement`.
    """
    return Measurement(
        case_id=case.case_id,
        implementation_version=implementation_version(package(case.implementation)),
        op=case.op,
        matrix=case.matrix.name,
        source=case.matrix.source,
        orientation=case.matrix.orientation,
        seed=case.seed,
        width=case.width,
        dtype=case.dtype,
        scaled=case.scaled,
        device=device.name,
        device_kind=device.kind,
        implementation=case.implementation,
        label=case.label,
        requested=dict(case.config),
        environment=environment,
        status=status,
        reason=reason,
        **facts,
    )
