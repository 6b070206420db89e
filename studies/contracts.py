"""What an implementation may offer beside its plans: labels, training, a study of published labels, a calibration.

Each contract is optional. `spmark.studies.table.CONTRACTS` lists the implementations that offer it under the name that
begins the Protocol's docstring. `spmark.studies.table.find_contract` imports the implementation's side on use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from spmark.impls.core.devicespec import DeviceSpec
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


class NamedMatrix(Protocol):
    """A matrix as a data set gives it."""

    @property
    def csr(self) -> Csr:
        """The matrix, (I, K)."""
        ...

    @property
    def kind(self) -> str:
        """Whether pattern and values are real, seeded or synthetic."""
        ...


@dataclass(frozen=True)
class LabelJob:
    """What ``spmark study label`` asks for."""

    device: DeviceSpec
    """A GPU, with measured rates."""
    folder: Path
    """Holds the labels of this device."""
    shard: tuple[int, int]
    """The number of this part of the work, counted from 1, and the number of parts."""
    ends: float
    """Time of the monotonic clock, in seconds, after which no measurement begins."""
    names: Sequence[str] = ()
    """``source/name`` of the matrices of all parts; empty where the implementation makes its own."""
    load: Callable[[Sequence[str]], Iterator[tuple[str, NamedMatrix | str]]] = lambda _: iter(())
    """Gives the matrices of these names in their order; a text in place of a matrix says why the matrix is missing."""
    dtypes: Sequence[DType] = tuple(DType)
    exhaustive: int = 0
    """Matrices on which every config is tried."""
    instead: str = ""
    """What to measure in place of labels, out of `Labels.others`."""

    def own(self, things: Sequence[Any]) -> Sequence[Any]:
        """Give the part of ``things`` that this shard measures: every M-th, beginning with the N-th."""
        number, parts = self.shard
        return things[number - 1 :: parts]

    @property
    def part(self) -> str:
        """The shard as names of files spell it, such as ``02-of-08``."""
        return f"{self.shard[0]:02d}-of-{self.shard[1]:02d}"


class Labels(Protocol):
    """``labels``: measures what a model of the implementation is trained on (``spmark study label``)."""

    patterns: ClassVar[Sequence[str]]
    """Matrices that are measured by default, as ``source/*`` or the name of a list that ships with sweeps; empty where
    the implementation makes its own. None of them is of the judging half."""
    others: ClassVar[Sequence[str]]
    """What can be measured in place of labels; each is an option of ``spmark study label``."""

    def measure(self, job: LabelJob) -> Outcome:
        """Measure everything that has no row yet; each row is on disk before the next measurement begins.

        Parameters
        ----------
        job : LabelJob

        Returns
        -------
        Outcome
            ``left`` counts the rows that are still missing.

        Raises
        ------
        RecordError
            The rows cannot be written, or rows of another device stand in their place.
        """
        ...


@dataclass(frozen=True)
class PublishedTable:
    """A CSV file that somebody else measured."""

    name: str
    """``paper/file`` without its ending."""
    what: str
    url: str
    sha256: str
    """Digest of the unpacked CSV."""
    licence: str
    citation: str
    gpu: str
    """The GPU of the measurements."""


@dataclass(frozen=True)
class PublishedText:
    """A published table with its content."""

    about: PublishedTable
    text: str


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
    published: PublishedText | None = None
    """Published labels, in place of measured ones."""
    as_published: bool = False
    """Whether features and questions of the model are the paper's, where ours differ."""


class Training(Protocol):
    """``predictors``: trains a model of the implementation (``spmark study train``)."""

    ending: ClassVar[str]
    """Ending of a model's file, such as ``.json``."""
    published: ClassVar[str]
    """Name of the published table that can stand for measured labels; empty where there is none."""

    def train(self, job: TrainingJob) -> Outcome:
        """Train on the labels and write the model's file.

        Parameters
        ----------
        job : TrainingJob

        Returns
        -------
        Outcome

        Raises
        ------
        DatasetError
            Labels are broken or too few.
        UnsupportedError
            The library that trains is not installed.
        BuildError
            The model cannot be written.
        """
        ...


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

    held_out: Sequence[Path]
    """Files of samples of the model's platform, for curves alone. None of their matrices may be trained on."""
    op: Op
    seed: int
    out: Path | None
    """File that the model is written to; checkpoints and curves stand beside it. None is where the cost model looks."""
    model: str = ""
    """Out of `TransferLearning.models`; empty for the method's own."""
    featuriser: Path | None = None
    """File of a model of the source platform, whose part that looks at matrices is taken over and stays as it is."""


@dataclass(frozen=True, kw_only=True)
class StudyJob(_Moving):
    """What ``spmark study`` asks for: methods that learn from the same samples, and are judged on the same others.

    ``command`` is without what chooses among methods and seeds.
    """

    evaluation: Sequence[Path]
    """Files of samples of the target platform that judge. None of their matrices may be trained on."""
    methods: Sequence[str]
    """Out of `TransferLearning.methods`; empty for all."""
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
    """The number of this part of the seeds, counted from 1, and the number of parts."""

    def owns(self, seed: int) -> bool:
        """Tell whether a seed is of this shard: every M-th, beginning with the N-th."""
        number, parts = self.shard
        return seed % parts == number - 1


class TransferLearning(Protocol):
    """``transfer``: trains a model on many samples of one platform, then on few of another (``spmark study train``)."""

    models: ClassVar[Sequence[str]]
    """Names of the models that can be trained, the method's own first."""
    methods: ClassVar[Sequence[str]]
    """Names of all that a study compares."""

    def study(self, job: StudyJob) -> Outcome:
        """Train every method with every seed, judge it, and append the facts; a study that was stopped goes on.

        A method that lacks its library, or that cannot learn from so few samples, is left out.

        Parameters
        ----------
        job : StudyJob

        Returns
        -------
        Outcome
            ``left`` counts the trainings that are still missing.

        Raises
        ------
        SweepError
            A method is unknown.
        DatasetError
            Samples are broken, too few, or of a matrix that judges.
        RecordError
            The facts cannot be written, or facts of other samples stand in their place.
        """
        ...

    def train(self, job: TransferJob) -> Outcome:
        """Train on the samples and write the model's file; a training that was stopped goes on.

        Parameters
        ----------
        job : TransferJob

        Returns
        -------
        Outcome

        Raises
        ------
        DatasetError
            Samples are broken, too few, or of a matrix that is held out.
        UnsupportedError
            The library that trains is not installed.
        BuildError
            The model cannot be written, or a checkpoint is of another training.
        """
        ...


class Reproduction(Protocol):
    """``published labels``: evaluates the models that a paper compares on its own labels."""

    tables: ClassVar[Sequence[str]]
    """Names of the published tables that are read."""
    shown: ClassVar[str]
    """The model that a summary shows."""

    def evaluate(
        self, tables: Mapping[str, PublishedText], seeds: int, slow: bool, tell: Callable[[str], None]
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Train and test on random splits.

        Parameters
        ----------
        tables : mapping of str to PublishedText
            By name of the table.
        seeds : int
            Random splits of each kind.
        slow : bool
            Train the models that take an hour, too.
        tell : callable
            Receives a line on every model that is trained.

        Returns
        -------
        mapping
            ``scores`` and ``ratios``, with the keys that the file of a study has.

        Raises
        ------
        DatasetError
            A table is not the published one.
        """
        ...


class Calibrating(Protocol):
    """``calibration``: measures the constants of a cost model on a GPU (``spmark calibrate``)."""

    what: ClassVar[str]
    """What is measured, for messages."""

    def calibrate(self, device: DeviceSpec) -> tuple[DeviceSpec, list[dict[str, Any]]]:
        """Measure the constants.

        Parameters
        ----------
        device : DeviceSpec
            A GPU, with measured rates.

        Returns
        -------
        device : DeviceSpec
            With the constants among its tables.
        agreement : list of dict
            How well the constants predict what was not fitted, one row for each operator and dtype. A terminal shows
            no value that is a list.
        """
        ...
