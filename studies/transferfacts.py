"""Facts of a study of models that move from one platform to another, as JSON lines: results, curves, costs, the run."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, RootModel

from spmark.impls.core.problem import Op
from spmark.records.plausible import are_times
from spmark.records.rowfile import read_rows
from spmark.studies.rows import Row

_log = logging.getLogger(__name__)


class _OfMethod(Row):
    """A fact about one method that was trained with one seed."""

    method: str
    """Such as ``dash``, ``waco_fm`` or ``lightgbm``."""
    source: str
    """Name of the platform of pre-training; empty where a method uses none."""
    target: str
    """Name of the platform that is judged."""
    op: Op
    seed: int = Field(ge=0)


class _OfModel(_OfMethod):
    """A fact about one method with one number of matrices to learn from."""

    source_matrices: int = Field(ge=0)
    target_matrices: int = Field(ge=0)


class TransferResult(_OfModel):
    """How a method orders the configs of one matrix that it has not seen.

    The first half of each config's samples chooses, and the second half values the choice.
    """

    kind: Literal["result"] = "result"
    matrix: str
    pattern_sha256: str
    nnz: int = Field(ge=0)
    configs: int = Field(ge=0)
    """Configs with samples, beside the default."""
    default_us: float = Field(gt=0)
    """Microseconds of the platform's default config."""
    optimum_us: float = Field(gt=0)
    """Microseconds of the best config."""
    top1_us: float = Field(gt=0)
    """Microseconds of the method's first config."""
    top5_us: float = Field(gt=0)
    """Microseconds of the best of the method's first five configs."""
    opa: float | None
    """Ordered pair accuracy; None where no two configs differ by more than noise."""
    tau: float | None
    """Kendall's tau of the scores and the times."""
    opa_ceiling: float | None
    """Ordered pair accuracy of the first half's times, held against the second half's."""
    tau_ceiling: float | None
    """Kendall's tau between the times of the two halves."""
    machine: str
    """Where the configs were timed."""
    note: str
    """What the platform's times are: simulated times say so."""


class TransferCurve(_OfModel):
    """One epoch of one training."""

    kind: Literal["curve"] = "curve"
    phase: Literal["pre-training", "fine-tuning"]
    epoch: int = Field(ge=1)
    values: dict[str, float]
    """``prl`` (ranking loss), ``opa``, ``tau``, and the same of held-out matrices behind ``held_``."""
    seconds: float = Field(ge=0)
    """Of the whole phase up to the end of this epoch."""


class TransferCost(_OfMethod):
    """Seconds that one part of a method took."""

    kind: Literal["cost"] = "cost"
    what: Literal["collect", "pretrain", "finetune", "features", "score"]
    seconds: float = Field(ge=0)
    matrices: int = Field(ge=0)
    configs: int = Field(ge=0)
    """Of all matrices."""
    cores: int = Field(ge=0)
    """Cores of the host that were used; 0 where nobody knows."""
    machine: str
    """What did the work: a GPU's name, or ``cpu``."""


class TransferRun(Row):
    """What made the facts of a study."""

    kind: Literal["run"] = "run"
    command: str
    """The command line without folders."""
    versions: dict[str, str]
    """Versions by package."""
    samples: dict[str, str]
    """SHA-256 of each file of samples, by its role and name."""
    spmark: str
    """Version."""
    commit: str
    """Commit of the source; empty where nobody knows."""


TransferFact = Annotated[TransferResult | TransferCurve | TransferCost | TransferRun, Field(discriminator="kind")]


class Fact(RootModel[TransferFact]):
    """A line of the file."""


def read_transfers(paths: Iterable[Path]) -> Iterator[TransferFact]:
    """Read the facts of files, or of archives, in the order of the files, oldest first.

    Raises
    ------
    RecordError
        A file cannot be read, or a line is no fact: names the file, the line and the field.
    """
    return (line.root for path in paths for line in read_rows(path, Fact))


def read_transfer_facts(path: Path) -> Iterator[TransferFact]:
    """Read the facts of a study; a result with impossible times is passed over with a warning."""
    for fact in read_transfers([path]):
        if isinstance(fact, TransferResult) and not are_times(
            (fact.default_us, fact.optimum_us, fact.top1_us, fact.top5_us)
        ):
            _log.warning("%s: passed over a result of %s on %s: impossible times", path, fact.method, fact.matrix)
        else:
            yield fact
