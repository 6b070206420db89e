"""What an implementation may offer beside its plans: labels, training, a study of published labels, a calibration.

Each contract is optional. `spmark.studies.table.CONTRACTS` lists the implementations that offer it, with the class that
does; `spmark.studies.table.find_contract` imports the class on use. Commands hand over the jobs below, and every answer
is an `Outcome`. The classes have, by contract:

``labels`` (``spmark study label``)
    ``measure(job: LabelJob)`` measures everything that has no row yet; each row is on disk before the next measurement
    begins. ``patterns`` are the matrices that are measured by default, as ``source/*`` or the name of a list that ships
    with sweeps, none of them of the judging half; empty where the implementation makes its own.
``predictors`` (``spmark study train``)
    ``train(job: TrainingJob)`` trains on labels and writes the model's file. ``ending`` is that of the file, such as
    ``.json``. ``published`` names the published table that can stand for measured labels; empty where there is none.
``transfer`` (``spmark study train`` and ``transfer``)
    ``train(job: TransferJob)`` trains a model on many samples of one platform, then on few of another, and writes its
    file; ``study(job: StudyJob)`` trains every method with every seed, judges it, and appends the facts. What was
    stopped goes on.
``published labels`` (``spmark study train --reproduce``)
    ``evaluate(tables, seeds, slow, tell)`` trains and tests the models that a paper compares on its own labels, on so
    many random splits of each kind, and gives ``scores`` and ``ratios`` with the keys that the file of a study has.
    ``tables`` are names of published tables, given as `spmark.datasets.published.PublishedText` by name; ``shown`` is
    the model that a summary shows; ``slow`` asks for the models that take an hour, too.
``calibration`` (``spmark calibrate``, ``spmark study calibrate``)
    ``calibrate(job: CalibrationJob)`` measures the constants that an implementation needs of a GPU, and gives
    `Constants`. ``what`` says what is measured, for messages. ``patterns`` are the matrices that it is measured on, as
    above. ``shipped(device)`` is the path of the constants that ship for a device of this name, which may not exist.

They raise `DatasetError` for labels or samples that are broken, too few, or of a matrix that is held out,
`UnsupportedError` where the library that trains is not installed, `BuildError` where a model cannot be written, and
`RecordError` where rows or facts cannot be, or where those of another device or of other samples stand in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.enums import MEASURED_TYPES
from spmark.impls.core.problem import Csr, DType, Op


@dataclass(frozen=True)
class Outcome:
    """The answer of a command that studies an implementation."""

    answer: Mapping[str, Any]
    """For scripts: written as JSON."""
    line: str
    """For people: the last line."""
    title: str = ""
    rows: Sequence[Mapping[str, Any]] = ()
    """For people: a table above the line, with its title."""
    left: int = 0
    """Rows that are still to be measured."""


Named = tuple[str, Any]
"""What is asked for, and its matrix as `spmark.datasets.load.LoadedMatrix`, or a text that says why it is missing."""


@dataclass(frozen=True, kw_only=True)
class _OnMatrices:
    """A GPU, and matrices that are measured on it."""

    device: DeviceSpec
    """With measured rates."""
    names: Sequence[str] = ()
    """``source/name`` of the matrices of all parts; empty where the implementation makes its own."""
    load: Callable[[Sequence[str]], Iterator[Named]] = lambda _: iter(())
    """Gives the matrices of these names in their order."""


@dataclass(frozen=True, kw_only=True)
class LabelJob(_OnMatrices):
    """What ``spmark study label`` asks for."""

    folder: Path
    """Holds the labels of this device."""
    shard: tuple[int, int]
    """The number of this part of the work, counted from 1, and the number of parts."""
    ends: float
    """Time of the monotonic clock, in seconds, after which no measurement begins."""
    dtypes: Sequence[DType] = MEASURED_TYPES

    def own(self, things: Sequence[Any]) -> Sequence[Any]:
        """Give the part of ``things`` that this shard measures: every M-th, beginning with the N-th."""
        number, parts = self.shard
        return things[number - 1 :: parts]

    @property
    def part(self) -> str:
        """The shard as names of files spell it, such as ``02-of-08``."""
        return f"{self.shard[0]:02d}-of-{self.shard[1]:02d}"

    def told(self, file: Path, todo: int, appended: tuple[int, int]) -> Outcome:
        """Answer that so many of the rows that were to be made are in ``file`` now."""
        made, failed = appended
        left = todo - made - failed
        line = f"{file}: {made} made, {left} left" + f", {failed} cannot be measured" * bool(failed)
        return Outcome({"file": file, "made": made, "left": left, "failed": failed}, line, left=left)


@dataclass(frozen=True)
class TrainingJob:
    """What ``spmark study train`` asks for: either files of labels or the published ones."""

    name: str
    """Name of the model in records."""
    out: Path
    """File that the model is written to."""
    command: str
    """The command line without folders, for the model's file."""
    files: Sequence[Path] = ()
    """Of measured labels."""
    published: Any = None
    """Published labels (`spmark.datasets.published.PublishedText`), in place of measured ones."""
    as_published: bool = False
    """Whether features and questions of the model are the paper's, where ours differ."""


@dataclass(frozen=True, kw_only=True)
class CalibrationJob(_OnMatrices):
    """What ``spmark calibrate`` asks for."""

    seconds: float
    """Time after which no measurement of a further matrix begins."""


@dataclass(frozen=True)
class Constants:
    """What an implementation needs of a GPU."""

    files: Mapping[str, bytes]
    """Contents of files of one name, by their ending; that of ``.json`` is what plans read."""
    told: Sequence[Mapping[str, Any]]
    """Rows of numbers about them. A terminal shows no value that is a list."""


@dataclass(frozen=True, kw_only=True)
class _Moving:
    """Samples of two platforms, and how models learn from them."""

    source: Sequence[Path]
    """Files of samples of a cheap platform."""
    target: Sequence[Path]
    """Files of samples of the platform that a model is for."""
    source_matrices: int
    """Matrices of the source files that are used, in their order."""
    target_matrices: int
    """Likewise of the target files."""
    epochs: int
    load: Callable[[Mapping[str, Any]], Csr]
    """Gives the matrix of a row by the row's entry of a sweep."""
    command: str
    """The command line without folders, for a model's file."""
    tell: Callable[[str], None]
    """Receives a line on every epoch."""


@dataclass(frozen=True, kw_only=True)
class TransferJob(_Moving):
    """What ``spmark study train`` asks of a model that moves between platforms.

    Without ``target``, the model is for the source platform.
    """

    op: Op
    seed: int
    out: Path | None
    """File that the model is written to; checkpoints stand beside it. None is where the cost model looks."""


@dataclass(frozen=True, kw_only=True)
class StudyJob(_Moving):
    """What ``spmark study transfer`` asks for: methods that learn from the same samples, judged on the same others.

    ``command`` is without what chooses among methods and seeds.
    """

    evaluation: Sequence[Path]
    """Files of samples of the target platform that judge. None of their matrices may be trained on."""
    methods: Sequence[str]
    """Empty for all."""
    op: Op | None
    """None for every operator that all files have."""
    seeds: int
    ends: float
    """Time of the monotonic clock, in seconds, after which no epoch begins."""
    out: Path
    """Folder of facts, models and checkpoints."""
    commit: str
    """Of the source; empty where nobody knows."""
    shard: tuple[int, int] = (1, 1)
    """The number of this part of the seeds, counted from 1, and the number of parts: every M-th seed."""
