"""LiteForm's side of `spmark study label` and `study train`: labels, schedules, forests, the paper's evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from spmark.impls.core.digest import implementation_version
from spmark.impls.core.errors import RecordError
from spmark.impls.core.problem import DType
from spmark.impls.core.recordfile import RecordFile, read_rows
from spmark.impls.liteform.predictor import ForestCard
from spmark.impls.liteform.schedule import ScheduleTable, table_for
from spmark.studies.contracts import LabelJob, NamedMatrix, Outcome, PublishedText, TrainingJob
from spmark.studies.liteform import published
from spmark.studies.liteform.forests import FOREST, held_out, train
from spmark.studies.liteform.labels import (
    WIDTHS,
    MatrixLabels,
    Skipped,
    measure,
    measured_before,
    read_labels,
    skipped_before,
)
from spmark.studies.liteform.schedules import ScheduleRow, make_table
from spmark.studies.liteform.tables import LabelTable, read_published, table_of
from spmark.studies.rows import Row, append_rows, digest_of

SCHEDULES = "schedules"
"""Alternative to labels: measures a table of schedules."""
LABELS = "liteform/output_2279_total"
SPEEDS = "liteform/eva_suitesparse_exe_time"
OVERHEADS = "liteform/eva_suitesparse_overhead"
_LIMIT_S = 6.0
"""Seconds after which the climb on one matrix is cut short."""
_EXHAUSTIVE_NNZ = 3_000_000
"""Non-zeros up to which every config of a matrix may be tried."""
_FIRST = (32, 128, 512)
"""J at which schedules are timed before any other J."""
Key = tuple[str, DType, int]
"""A matrix, a dtype and J; J of 0 stands for all."""


class FormatLabels:
    """Times formats matrix by matrix, or schedules of CELL (`spmark.studies.contracts.Labels`)."""

    patterns: ClassVar[Sequence[str]] = ("tuning_graphs", "seeded/*")
    others: ClassVar[Sequence[str]] = (SCHEDULES,)

    def measure(self, job: LabelJob) -> Outcome:
        """Measure matrices without a row; one that cannot be measured is kept with the reason and not tried again."""
        # Labels alone end in .jsonl: training reads every such file of the folder.
        path, version = job.folder / f"skipped-{job.part}.ndjson", implementation_version("liteform")
        skipped = skipped_before(path, job.device.name, version)
        known = len(skipped)

        def skip(key: Key, reason: str) -> None:
            matrix, dtype, width = key
            about: dict[str, Any] = {"device": job.device.name, "implementation_version": version}
            with RecordFile(path) as file:
                file.append(Skipped(matrix=matrix, dtype=dtype, width=width, reason=reason, **about))
            skipped.add(key)

        if job.instead == SCHEDULES:
            file, todo = job.folder / f"schedules-{job.part}.ndjson", _schedules(job, skipped)
        else:
            file, todo = job.folder / f"shard-{job.part}.jsonl", _labels(job, skipped, version)
        made = append_rows(file, todo.things, todo.make, job.ends, skip)
        if job.instead == SCHEDULES:
            _tabulate(job, version)
        left = todo.missing - made - (len(skipped) - known)
        why = f", {len(skipped)} skipped, see {path}" if skipped else ""
        return Outcome(
            answer={"file": file, "made": made, "left": left, "skipped": len(skipped), "skips": path},
            line=f"{file}: {made} made, {left} left{why}",
            left=left,
        )


class ForestTraining:
    """Trains both forests, or fits a table to times of schedules (`spmark.studies.contracts.Training`)."""

    ending: ClassVar[str] = ".npz"
    published: ClassVar[str] = LABELS

    def train(self, job: TrainingJob) -> Outcome:
        """Train on labels; measured ones are also held out, matrix by matrix, to say how good the models are.

        As published, the selection knows no J and asks for a speed-up of 1.1, and nothing is held out: the study of the
        published labels says how good such models are. Files of schedules (``.ndjson``) give a table, which is JSON.
        """
        if any(".ndjson" in path.suffixes for path in job.files):
            return _fitted_table(job)
        labels, about, rows = _published(job.published) if job.published else _measured(job.files)
        about = about.model_copy(update={"name": job.name, "made_with": {"command": job.command}})
        by_width = bool(rows) and not job.as_published
        scores = held_out(rows, about) if by_width else {}
        card = train(labels, about, by_width=by_width).save(job.out)
        return Outcome(
            answer={"file": job.out, "card": card.model_dump(), "held_out": scores},
            line=f"{job.out}: {card.trained_on}; {labels.one_per_matrix().size} matrices",
            title="On matrices that were held out",
            rows=[{"what": name, **spread} for name, spread in scores.items()],
        )


class PublishedLabels:
    """Evaluates the paper's classifiers on its labels (`spmark.studies.contracts.Reproduction`)."""

    tables: ClassVar[Sequence[str]] = (LABELS, SPEEDS, OVERHEADS)
    shown: ClassVar[str] = FOREST

    def evaluate(
        self, tables: Mapping[str, PublishedText], seeds: int, slow: bool, tell: Callable[[str], None]
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Train and test as the public code does and as one should; tables 5 and 6, figures 7, 9 and 10."""
        labels = read_published(tables[LABELS].text, LABELS)
        scores = published.score_models(labels, seeds, slow, tell) + published.learning_curves(labels, seeds, tell)
        speeds = published.speed_ratios(tables[SPEEDS].text, SPEEDS)
        kept, draws = published.selected_as_published(speeds)
        selected = {"selected": kept, "selected_geomeans": [draws.min(), draws.mean(), draws.max()]}
        ratios = {
            "figure7": (SPEEDS, speeds, selected),
            "figure9": (OVERHEADS, published.overhead_ratios(tables[OVERHEADS].text, OVERHEADS), {}),
        }
        told = [
            {"name": name, "what": tables[of].about.what, "num_rows": found.num_rows, "ratios": found.ratio, **more}
            for name, (of, found, more) in ratios.items()
        ]
        return {"scores": list(map(published.rounded, map(vars, scores))), "ratios": list(map(published.rounded, told))}


class _Todo(NamedTuple):
    """What a shard has left to measure."""

    missing: int
    things: Iterator[tuple[Key, NamedMatrix | str]]
    make: Callable[[Key, NamedMatrix], Row]


def _labels(job: LabelJob, skipped: Set[Key], version: str) -> _Todo:
    from spmark.studies.liteform.gpu import GpuTimer, compile_schedules, start_width

    device, exhaustive = job.device, spread_out(job.names, job.exhaustive)
    compile_schedules(device, job.dtypes, WIDTHS, table_for(device.name))
    before = measured_before(sorted(job.folder.glob("shard-*.jsonl")), device.name, version)
    before |= {(name, dtype) for name, dtype, width in skipped if not width}
    missing = [(name, dtype) for name in job.own(job.names) for dtype in job.dtypes if (name, dtype) not in before]

    def make(key: Key, matrix: NamedMatrix) -> MatrixLabels:
        name, dtype, _ = key
        about = {"matrix": name, "matrix_kind": str(matrix.kind), "device": device.name}
        every = name in exhaustive and matrix.csr.nnz <= _EXHAUSTIVE_NNZ
        return measure(
            matrix.csr,
            GpuTimer(matrix.csr, device, dtype),
            about | {"implementation_version": version},
            dtype=dtype,
            exhaustive=every,
            start_width=start_width(matrix.csr, device),
            limit_s=_LIMIT_S,
        )

    matrices = job.load(list(dict.fromkeys(name for name, _ in missing)))
    things = (((*key, 0), matrix) for name, matrix in matrices for key in missing if key[0] == name)
    return _Todo(len(missing), things, make)


def _schedules(job: LabelJob, skipped: Set[Key]) -> _Todo:
    from spmark.studies.liteform.gpu import ScheduleTimer, compile_schedules

    compile_schedules(job.device, job.dtypes, WIDTHS, None)
    before = {(row.matrix, row.dtype, row.width) for row in _all_schedules(job)} | skipped
    missing = [key for key in _schedule_keys(job, job.own(job.names)) if key not in before]
    warm: list[ScheduleRow] = []

    def make(key: Key, matrix: NamedMatrix) -> ScheduleRow:
        name, dtype, width = key
        if not warm:  # the first measurement of a process is slow: its times are thrown away
            warm.append(ScheduleTimer(matrix.csr, job.device, dtype, width).row(name))
        return ScheduleTimer(matrix.csr, job.device, dtype, width).row(name)

    def things() -> Iterator[tuple[Key, NamedMatrix | str]]:
        for first in (True, False):
            keys = [key for key in missing if (key[-1] in _FIRST) is first]
            for name, matrix in job.load(list(dict.fromkeys(name for name, *_ in keys))):
                yield from ((key, matrix) for key in keys if key[0] == name)

    return _Todo(len(missing), things(), make)


def _tabulate(job: LabelJob, version: str) -> None:
    """Write the table that follows from the times of schedules once no shard has anything left."""
    rows = _all_schedules(job)
    done = {(row.matrix, row.dtype, row.width) for row in rows}
    for path in job.folder.glob("skipped-*.ndjson"):
        done |= skipped_before(path, job.device.name, version)
    if done.issuperset(_schedule_keys(job, job.names)):
        _write_table(make_table(rows, "spmark study label liteform --schedules"), job.folder / "schedules.json")


def _schedule_keys(job: LabelJob, names: Sequence[str]) -> list[Key]:
    """List what is measured on matrices, `_FIRST` before the other J."""
    later = [width for width in WIDTHS if width not in _FIRST]
    groups = product((_FIRST, later), names, job.dtypes)
    return [(name, dtype, width) for widths, name, dtype in groups for width in widths]


def _all_schedules(job: LabelJob) -> list[ScheduleRow]:
    return _schedule_rows(sorted(job.folder.glob("schedules-*.ndjson")))


def _schedule_rows(files: Sequence[Path]) -> list[ScheduleRow]:
    return [row for path in files for row in read_rows(path, ScheduleRow)]


def _fitted_table(job: TrainingJob) -> Outcome:
    """Fit a table to rows, which need no GPU; the table names the command and the rows."""
    rows, path = _schedule_rows(job.files), job.out.with_suffix(".json")
    counted = f"{len(rows)} rows of {len({row.matrix for row in rows})} matrices"
    table = make_table(rows, f"{job.command}: {counted}, SHA-256 {digest_of(job.files)}")
    _write_table(table, path)
    return Outcome(
        answer={"file": path, "entries": len(table.entries), "thirds": table.thirds},
        line=f"{path}: {counted}; {len(table.entries)} entries",
    )


def _write_table(table: ScheduleTable, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(table.model_dump_json(exclude_defaults=True) + "\n", encoding="utf-8")
    except OSError as error:
        raise RecordError(f"{path}: the table cannot be written: {error.strerror}; name another folder") from error


def spread_out(names: Sequence[str], count: int) -> set[str]:
    """Choose ``count`` of the names, evenly over the list: some of every source and kind."""
    step = max(1, len(names) // count) if count else 1
    return set(names[::step][:count])


def _published(table: PublishedText) -> tuple[LabelTable, ForestCard, list[MatrixLabels]]:
    """Give the authors' labels with the facts about them; this project has no rows of its own for them."""
    about = table.about
    origin = f"the authors' published labels ({about.licence}): {about.citation}"
    card = ForestCard(trained_on=origin, labels_sha256=about.sha256, gpu=about.gpu)
    return read_published(table.text, about.name), card, []


def _measured(files: Sequence[Path]) -> tuple[LabelTable, ForestCard, list[MatrixLabels]]:
    """Give measured labels as a table, the facts about them, and their rows."""
    rows = read_labels(files)
    dtypes = sorted({row.dtype.value for row in rows})
    gpu = rows[0].device
    origin = f"labels measured with spmark on {gpu} in {' and '.join(dtypes)}"
    return table_of(rows), ForestCard(trained_on=origin, labels_sha256=digest_of(files), gpu=gpu), rows
