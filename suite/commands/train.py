"""``spmark train``: predictors from labels, and what the published labels say about how good they are."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from spmark.datasets.cache import Cache
from spmark.datasets.near import near
from spmark.datasets.published import (
    LITEFORM_LABELS,
    LITEFORM_OVERHEADS,
    LITEFORM_SPEEDS,
    TABLES,
    PublishedTable,
    read_table,
)
from spmark.impls.core.errors import DatasetError, SweepError
from spmark.suite.commands.console import answer, console, say, table

if TYPE_CHECKING:
    from spmark.impls.liteform.labelled import Labels
    from spmark.impls.liteform.labels import LabelRow
    from spmark.impls.liteform.predictor import Card
    from spmark.report.claims.study import RatioRow, ScoreRow, Source, Study

PUBLISHED = "published"
"""Stands for the labels that a paper's authors publish."""
METHODS = ("liteform", "lo_spmm")
"""Methods that predict."""
_STUDIED = ("liteform",)
"""Those of which labels are published."""
_DIGITS = 6


@dataclass(frozen=True)
class TrainRequest:
    """What the command line asks for."""

    method: str
    labels: Sequence[str]
    """Files of labels, folders that hold some, or `PUBLISHED`."""
    out: Path
    name: str
    as_json: bool


def train_predictor(request: TrainRequest) -> None:
    """Train on labels and write the model's file.

    Raises
    ------
    SweepError
        The method has no predictor.
    DatasetError
        Labels are missing, broken or too few.
    BuildError
        The model cannot be written.
    """
    check_method(request.method)
    from spmark.impls.liteform.held_out import held_out
    from spmark.impls.liteform.training import train

    labels, about, rows = _labels(request.labels)
    command = f"spmark train {request.method} " + " ".join(f"--labels {Path(name).name}" for name in request.labels)
    about = about.model_copy(update={"name": request.name, "made_with": {"command": command}})
    scores = held_out(rows, about) if rows else {}
    card = train(labels, about, by_width=bool(rows)).save(request.out)
    if request.as_json:
        told = {name: spread._asdict() for name, spread in scores.items()}
        answer({"file": request.out, "card": card.model_dump(), "held_out": told})
        return
    screen = console(request.as_json)
    if scores:
        lines = [{"what": name, **spread._asdict()} for name, spread in scores.items()]
        screen.print(table("On matrices that were held out", lines, plain=True))
    say(screen, escape(f"{request.out}: {card.trained_on}; {labels.one_per_matrix().size} matrices"))


def reproduce_study(method: str, seeds: int, slow: bool, out: Path, as_json: bool) -> None:
    """Evaluate the predictors on the published labels, write the study and its page.

    Raises
    ------
    SweepError
        The method has no predictor.
    DatasetError
        A published table cannot be had.
    RecordError
        The study cannot be written.
    """
    check_method(method, _STUDIED, "published labels")
    from spmark.report.page.study import write_study_page

    screen = console(as_json)
    study = _study(method, seeds, slow, lambda text: say(screen, escape(text)))
    file = study.write(out)
    page = write_study_page(study, out)
    if as_json:
        answer({"study": file, "page": page})
        return
    rows = [
        {"task": task, "split": split, "accuracy": found.interval.value, "least": found.interval.low,
         "greatest": found.interval.high}
        for task in ("selection", "partitions")
        for split in study.splits
        if (found := study.find(task, split, "Random Forest", "accuracy"))
    ]  # fmt: skip
    screen.print(table(f"Random forest over {seeds} splits", rows, plain=True))
    for path in (file, page):
        say(screen, escape(str(path)))


def check_method(method: str, methods: Sequence[str] = METHODS, having: str = "predictors") -> None:
    """Refuse what is none of ``methods``.

    Raises
    ------
    SweepError
        Lists those that there are.
    """
    if method not in methods:
        raise SweepError(
            f"expected a method with {having} out of {', '.join(methods)}, found {method!r}{near(method, methods)}"
        )


def _labels(names: Sequence[str]) -> tuple[Labels, Card, list[LabelRow]]:
    """Give labels of one kind, published or measured, what is known of them, and rows of those that are measured."""
    from spmark.impls.liteform.labelled import read_published
    from spmark.impls.liteform.measured import read_labels, table_of
    from spmark.impls.liteform.predictor import Card

    if list(names) == [PUBLISHED]:
        about = TABLES[LITEFORM_LABELS]
        labels = read_published(read_table(about.name, Cache.default()), about.name)
        origin = f"the authors' published labels ({about.licence}): {about.citation}"
        return labels, Card(trained_on=origin, labels_sha256=about.sha256, gpu=about.gpu), []
    if PUBLISHED in names or not names:
        raise DatasetError(f"expected --labels {PUBLISHED}, or files of measured labels, found {', '.join(names)}")
    files = [path for name in names for path in labels_in(Path(name))]
    rows = read_labels(files)
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    dtypes = sorted({row.dtype.value for row in rows})
    gpu = rows[0].device
    origin = f"labels measured with spmark on {gpu} in {' and '.join(dtypes)}"
    return table_of(rows), Card(trained_on=origin, labels_sha256=digest, gpu=gpu), rows


def labels_in(path: Path) -> list[Path]:
    """Give a file of labels, or those of a folder; raises `DatasetError` where there are none."""
    found = sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]
    if not found or not all(file.is_file() for file in found):
        raise DatasetError(f"{path}: expected a file of labels (.jsonl) or a folder that holds some, found none")
    return found


def _study(method: str, seeds: int, slow: bool, tell: Callable[[str], None]) -> Study:
    from spmark.impls.liteform import study
    from spmark.impls.liteform.labelled import read_published
    from spmark.report.claims.study import Study

    cache = Cache.default()
    texts = {name: read_table(name, cache) for name in (LITEFORM_LABELS, LITEFORM_SPEEDS, LITEFORM_OVERHEADS)}
    labels = read_published(texts[LITEFORM_LABELS], LITEFORM_LABELS)
    scores = study.score_models(labels, seeds, slow, tell)
    scores += study.learning_curves(labels, seeds, tell)
    speeds = study.speed_ratios(texts[LITEFORM_SPEEDS], LITEFORM_SPEEDS)
    kept, draws = study.selected_as_published(speeds)
    overheads = study.overhead_ratios(texts[LITEFORM_OVERHEADS], LITEFORM_OVERHEADS)
    return Study(
        paper=method,
        seeds=seeds,
        command=f"spmark train {method} --reproduce --seeds {seeds}" + (" --slow" if slow else ""),
        made_with={name: version(name) for name in ("spmark", "scikit-learn", "numpy")},
        sources=tuple(_source(TABLES[name]) for name in texts),
        scores=tuple(map(_score_row, scores)),
        ratios=(
            _ratio_row("figure7", TABLES[LITEFORM_SPEEDS].what, speeds, kept, draws),
            _ratio_row("figure9", TABLES[LITEFORM_OVERHEADS].what, overheads),
        ),
    )


def _score_row(score: Any) -> ScoreRow:
    from spmark.report.claims.study import ScoreRow

    values = tuple(round(value, _DIGITS) for value in score.values)
    return ScoreRow(
        task=score.task, split=score.split, model=score.model, metric=score.metric, values=values,
        train_rows=score.train_rows, note=score.note,
    )  # fmt: skip


def _ratio_row(name: str, what: str, found: Any, selected: int = 0, draws: Any = None) -> RatioRow:
    from spmark.report.claims.study import RatioRow

    ends = (
        () if draws is None else tuple(round(float(end), _DIGITS) for end in (draws.min(), draws.mean(), draws.max()))
    )
    return RatioRow(
        name=name,
        what=what,
        num_rows=tuple(int(size) for size in found.num_rows),
        ratios=tuple(round(float(ratio), _DIGITS) for ratio in found.ratio),
        selected=selected,
        selected_geomeans=ends,
    )


def _source(about: PublishedTable) -> Source:
    from spmark.report.claims.study import Source

    return Source(
        name=about.name, url=about.url, sha256=about.sha256, gpu=about.gpu, licence=about.licence,
        citation=about.citation,
    )  # fmt: skip
