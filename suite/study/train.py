"""``spmark study train``: predictors from labels, and how good predictors are on the published labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from rich.markup import escape

from spmark.datasets.cache import Cache
from spmark.datasets.published import TABLES, PublishedText, read_table
from spmark.impls.core.errors import DatasetError
from spmark.records.rowfile import SUFFIXES
from spmark.studies.contracts import Outcome, TrainingJob
from spmark.studies.table import find_contract
from spmark.suite.cli.console import console, say, tell

PUBLISHED = "published"
"""Stands for the labels that a paper's authors publish."""


def train_predictor(
    method: str, labels: Sequence[str], out: Path | None, name: str, *, as_json: bool, as_published: bool
) -> None:
    """Train on labels and write the model's file.

    Labels are files, folders that hold some, or `PUBLISHED`, which is the default where labels are published.

    Raises
    ------
    SweepError
        The method has no predictor.
    DatasetError
        Labels are missing, broken or too few.
    UnsupportedError
        The library that trains is not installed.
    BuildError
        The model cannot be written.
    """
    training = find_contract("predictors", method)
    names = labels or ((PUBLISHED,) if training.published else ())
    words = " ".join(f"--labels {Path(one).name}" for one in names)
    published: PublishedText | None = None
    files: list[Path] = []
    if training.published and list(names) == [PUBLISHED]:
        published = _published(training.published)
    elif training.published and PUBLISHED in names:
        raise DatasetError(f"expected --labels {PUBLISHED}, or files of measured labels, found {', '.join(names)}")
    else:
        files = [path for one in names for path in labels_in(Path(one))]
    job = TrainingJob(
        name=name,
        out=out or Path("out") / f"{method}-{name}{training.ending}",
        command=f"spmark study train {method} {words}" + (" --as-published" if as_published else ""),
        files=files,
        published=published,
        as_published=as_published,
    )
    tell(training.train(job), as_json)


def reproduce_study(method: str, seeds: int, slow: bool, out: Path, as_json: bool) -> None:
    """Evaluate the predictors on the published labels, write the study and its page.

    Raises
    ------
    SweepError
        The method has no published labels.
    DatasetError
        A published table cannot be had.
    RecordError
        The study cannot be written.
    """
    from spmark.report.claims.study import Study
    from spmark.report.site.study import write_study_page

    reproduction = find_contract("published labels", method)
    screen = console(as_json)
    tables = {name: _published(name) for name in reproduction.tables}
    rows = reproduction.evaluate(tables, seeds, slow, lambda text: say(screen, escape(text)))
    study = Study.model_validate(
        {
            "paper": method,
            "seeds": seeds,
            "command": f"spmark study train {method} --reproduce --seeds {seeds}" + (" --slow" if slow else ""),
            "made_with": {name: version(name) for name in ("spmark", "scikit-learn", "numpy")},
            "sources": [
                {key: value for key, value in asdict(table.about).items() if key != "what"} for table in tables.values()
            ],
            **rows,
        }
    )
    file = study.write(out)
    page = write_study_page(study, out)
    summary = [
        {"task": task, "split": split, "accuracy": score.interval.value, "least": score.interval.low,
         "greatest": score.interval.high}
        for task in dict.fromkeys(score.task for score in study.scores)
        for split in study.splits
        if (score := study.find(task, split, reproduction.shown, "accuracy"))
    ]  # fmt: skip
    title = f"{reproduction.shown.capitalize()} over {seeds} splits"
    tell(Outcome({"study": file, "page": page}, f"{file}\n{page}", title, summary), as_json)


def _published(name: str) -> PublishedText:
    return PublishedText(TABLES[name], read_table(name, Cache.default()))


def labels_in(path: Path) -> list[Path]:
    """Give a file of labels, or those of a folder; raises `DatasetError` where there are none."""
    files = sorted(file for suffix in SUFFIXES for file in path.rglob(f"*{suffix}")) if path.is_dir() else [path]
    if not files or not all(file.is_file() for file in files):
        raise DatasetError(
            f"{path}: expected a file of rows ({', '.join(SUFFIXES)}) or a folder that holds some, found none: "
            "spmark study label and spmark study collect write such files"
        )
    return files
