"""Problems with configs that were measured: what a replay judges, and what it must leave out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.record import CandidateRow, CaseSpec, Measurement


@dataclass(frozen=True, eq=False)
class Searched:
    """A problem with the measured configs of an implementation, or of a platform that configs were collected on."""

    case: CaseSpec
    """For collected configs, the platform stands in for an implementation."""
    case_id: str
    matrix_hash: str
    machine: str
    """Name of the device, ``simulated``, or empty where the environment is not recorded."""
    measured: Sequence[CandidateRow]
    """Configs with samples, each once."""
    failed: Sequence[CandidateRow] = ()
    """Configs with a reason instead."""
    note: str = ""
    """What the times of collected configs are."""
    outdated: str = ""
    """Why no model of today knows the configs."""

    @property
    def times_us(self) -> NDArray[np.float64]:
        """Medians of the measured configs, (len(measured),) float64."""
        return np.array([np.median(row.samples_us) for row in self.measured], np.float64)


@dataclass(frozen=True, eq=False, kw_only=True)
class Recorded(Searched):
    """A recorded case with what its search saw."""

    record: Measurement
    device: DeviceSpec | None
    """None where the environment is not recorded."""

    @classmethod
    def of(
        cls,
        case: CaseSpec,
        record: Measurement,
        device: DeviceSpec | None,
        measured: Sequence[CandidateRow],
        failed: Sequence[CandidateRow] = (),
    ) -> Recorded:
        """Join a record, its case and its configs."""
        return cls(
            case=case,
            case_id=record.case_id,
            matrix_hash=record.matrix_hash,
            machine=device.name if device else "",
            measured=measured,
            failed=failed,
            record=record,
            device=device,
        )


@dataclass(frozen=True)
class LeftOut:
    """A case that cannot be replayed."""

    case_id: str
    reason: str
    """The same words for all cases of a kind."""
    detail: str = ""
