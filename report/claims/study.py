"""How well predictors do: the file of a study, which holds every score of every split, and lookups in a study.

``spmark study train liteform --reproduce`` writes a study. A study measures no device, so it stands beside records, not
among them. The published study ships under ``reference/cpu``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from math import nan
from pathlib import Path
from typing import Literal

import numpy as np

from spmark.impls.core.errors import RecordError
from spmark.impls.core.files import written
from spmark.impls.core.untrusted import Frozen, parse_model, reading
from spmark.report.analysis.statistics import NOTHING, Interval, mean_of

STUDY = "study.json"
"""Name of the file in its folder."""


class ScoreRow(Frozen):
    """One metric of one model under one way of splitting."""

    task: str
    """``selection`` or ``partitions``."""
    split: str
    model: str
    metric: str
    """``failed`` where the model could not be trained; ``note`` says why."""
    values: tuple[float, ...] = ()
    """One for each seed, in their order."""
    train_rows: int = 0
    """Rows trained on where the metric is a point of a learning curve, else 0."""
    note: str = ""

    @property
    def interval(self) -> Interval:
        """The mean over the seeds, with the least and the greatest: a spread, not a confidence interval."""
        if not self.values:
            return NOTHING
        least, greatest = (min(self.values), max(self.values)) if len(self.values) > 1 else (nan, nan)
        return Interval(float(np.mean(self.values)), least, greatest)


class RatioRow(Frozen):
    """Published ratios of many matrices, and their mean over a published selection of these matrices."""

    name: str
    what: str
    num_rows: tuple[int, ...]
    """One for each matrix."""
    ratios: tuple[float, ...]
    selected: int = 0
    """Number of matrices that the published figure keeps, where the figure leaves some out."""
    selected_geomeans: tuple[float, ...] = ()
    """Geometric means over the kept matrices: least, mean and greatest of the random draws."""

    @property
    def geomean(self) -> float:
        """Over all matrices."""
        return mean_of(self.ratios)


class StudySource(Frozen):
    """A file that a study rests on."""

    name: str
    url: str
    sha256: str
    gpu: str
    licence: str
    citation: str


class Study(Frozen):
    """A whole study."""

    schema_version: Literal[1] = 1
    paper: str
    seeds: int
    command: str
    made_with: dict[str, str]
    """Versions."""
    sources: tuple[StudySource, ...]
    scores: tuple[ScoreRow, ...]
    ratios: tuple[RatioRow, ...]

    def find(self, task: str, split: str, model: str, metric: str) -> ScoreRow | None:
        """Give the score of a model trained on all training rows, or None."""
        key = task, split, model, metric
        return next(
            (row for row in self.scores if not row.train_rows and key == (row.task, row.split, row.model, row.metric)),
            None,
        )

    def curve(self, task: str, split: str, metric: str) -> Iterator[ScoreRow]:
        """Give the points of a learning curve, by rows trained on."""
        rows = [r for r in self.scores if r.train_rows and (r.task, r.split, r.metric) == (task, split, metric)]
        yield from sorted(rows, key=lambda row: row.train_rows)

    def nearest(self, task: str, model: str, metric: str, train_rows: int = 0) -> ScoreRow | None:
        """Give a score under the first way of splitting: of all training rows, or of a curve's nearest point."""
        if not train_rows:
            return self.find(task, self.splits[0], model, metric)
        points = [row for row in self.curve(task, self.splits[0], metric) if row.model == model]
        return min(points, key=lambda row: abs(row.train_rows - train_rows), default=None)

    @property
    def models(self) -> list[str]:
        """Every model, in the order of the file."""
        return list(dict.fromkeys(row.model for row in self.scores if not row.train_rows))

    @property
    def splits(self) -> list[str]:
        """Every way of splitting."""
        return list(dict.fromkeys(row.split for row in self.scores))

    def write(self, folder: Path) -> Path:
        """Write the file; gives its path.

        Raises
        ------
        RecordError
            The file cannot be written.
        """
        path = folder / STUDY
        with written(path, RecordError) as part:
            part.write_text(self.model_dump_json(indent=1, exclude_defaults=True) + "\n", encoding="utf-8")
        return path


def read_study(path: Path) -> Study:
    """Read a study.

    Raises
    ------
    RecordError
        The file cannot be read, or is not a study; the message names the key.
    """
    with reading(path, "a study", RecordError):
        return parse_model(Study, path.read_bytes())


@cache
def published_study(paper: str) -> Study | None:
    """Give the study of a paper's predictors that ships, or None.

    Raises
    ------
    RecordError
        The shipped file cannot be read.
    """
    path = Path(str(files("spmark.report"))) / "reference" / "cpu" / f"{paper}_predictors" / STUDY
    return read_study(path) if path.is_file() else None
