"""LiteForm's side of `spmark study label` and `study train`: labels, schedules, forests, the paper's evaluation."""

from __future__ import annotations

import gzip
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, ClassVar

from spmark.impls.core.digest import implementation_version
from spmark.impls.core.enums import MEASURED_TYPES
from spmark.impls.core.errors import RecordError
from spmark.impls.core.files import written
from spmark.impls.liteform.predictor import ForestCard
from spmark.impls.liteform.schedule import ScheduleTable, shipped_table, table_for
from spmark.records.rowfile import read_rows
from spmark.studies.contracts import CalibrationJob, Constants, LabelJob, Outcome, TrainingJob
from spmark.studies.liteform import labels as labelled
from spmark.studies.liteform import published
from spmark.studies.liteform.forests import FOREST, train
from spmark.studies.liteform.labels import WIDTHS, Key, MatrixLabels
from spmark.studies.liteform.schedules import ScheduleRow, make_table
from spmark.studies.liteform.tables import read_published, table_of
from spmark.studies.rows import append_rows, digest_of

LABELS = "liteform/output_2279_total"
SPEEDS = "liteform/eva_suitesparse_exe_time"
OVERHEADS = "liteform/eva_suitesparse_overhead"
_LIMIT_S = 6.0
"""Seconds after which the climb on one matrix is cut short."""
_TIMED_AT = (32, 128, 512)
"""J at which schedules are timed."""


class FormatLabels:
    """Times formats matrix by matrix (`spmark.studies.contracts`)."""

    patterns: ClassVar[Sequence[str]] = ("tuning_graphs", "seeded/*")

    def measure(self, job: LabelJob) -> Outcome:
        """Measure matrices without a row, in this shard's file or in another one, until the time is up."""
        from spmark.studies.liteform.gpu import GpuTimer, compile_schedules, start_width

        device, file = job.device, job.folder / f"shard-{job.part}.jsonl"
        about = {"device": device.name, "implementation_version": implementation_version("liteform")}
        rows = (row for path in sorted(job.folder.glob("shard-*.jsonl")) for row in read_rows(path, MatrixLabels))
        done = {(row.matrix, row.dtype) for row in rows}
        todo = [key for key in product(job.own(job.names), job.dtypes) if key not in done]
        compile_schedules(device, job.dtypes, WIDTHS, table_for(device.name))

        def things() -> Iterator[tuple[Key, Any]]:
            for name, matrix in job.load(list(dict.fromkeys(name for name, _ in todo))):
                yield from ((key, matrix) for key in todo if key[0] == name)

        def make(key: Key, matrix: Any) -> MatrixLabels:
            name, dtype = key
            return labelled.measure(
                matrix.csr,
                GpuTimer(matrix.csr, device, dtype),
                {"matrix": name, "matrix_kind": str(matrix.kind), **about},
                dtype=dtype,
                start_width=start_width(matrix.csr, device),
                limit_s=_LIMIT_S,
            )

        return job.told(file, len(todo), append_rows(file, things(), make, job.ends))


class ForestTraining:
    """Trains both forests, or fits a table to times of schedules (`spmark.studies.contracts`)."""

    ending: ClassVar[str] = ".npz"
    published: ClassVar[str] = LABELS

    def train(self, job: TrainingJob) -> Outcome:
        """Train on labels; measured ones are also held out, matrix by matrix, to say how good the models are.

        As published, the selection knows no J and asks for a speed-up of 1.1, and nothing is held out: the study of the
        published labels says how good such models are. Files of schedules (``.ndjson``) give a table, which is JSON.
        """
        if any(".ndjson" in path.suffixes for path in job.files):
            return _fitted_table(job)
        rows = [] if job.published else labelled.read_labels(job.files)
        if job.published:
            table = job.published.about
            labels, gpu, digest = read_published(job.published.text), table.gpu, table.sha256
            origin = f"the authors' published labels ({table.licence}): {table.citation}"
        else:
            labels, gpu, digest = table_of(rows), rows[0].device, digest_of(job.files)
            origin = f"labels measured with spmark on {gpu} in {' and '.join(sorted({row.dtype for row in rows}))}"
        facts = {"name": job.name, "gpu": gpu, "trained_on": origin, "labels_sha256": digest}
        about = ForestCard(**facts, made_with={"command": job.command})
        by_width = not (job.published or job.as_published)
        scores = published.held_out(labels) if by_width else []
        card = train(labels, about, by_width=by_width).save(job.out)
        return Outcome(
            answer={"file": job.out, "card": card.model_dump(), "held_out": scores},
            line=f"{job.out}: {card.trained_on}; {labels['matrix'].nunique()} matrices",
            title="On matrices that were held out",
            rows=scores,
        )


class PublishedLabels:
    """Evaluates the paper's classifiers on its labels (`spmark.studies.contracts`)."""

    tables: ClassVar[Sequence[str]] = (LABELS, SPEEDS, OVERHEADS)
    shown: ClassVar[str] = FOREST

    def evaluate(
        self, tables: Mapping[str, Any], seeds: int, slow: bool, tell: Callable[[str], None]
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Train and test as the public code does and as one should; tables 5 and 6, figures 7, 9 and 10."""
        labels = read_published(tables[LABELS].text)
        scores = published.score_models(labels, seeds, slow, tell) + published.learning_curves(labels, seeds, tell)
        speeds = published.speed_ratios(tables[SPEEDS].text)
        kept, draws = published.selected_as_published(speeds["ratio"].to_numpy())
        selected = {"selected": kept, "selected_geomeans": [draws.min(), draws.mean(), draws.max()]}
        ratios = {
            "figure7": (SPEEDS, speeds, selected),
            "figure9": (OVERHEADS, published.overhead_ratios(tables[OVERHEADS].text), {}),
        }
        told = [
            {"name": name, "what": tables[of].about.what, **found.rename(columns={"ratio": "ratios"}), **more}
            for name, (of, found, more) in ratios.items()
        ]
        return {"scores": list(map(published.rounded, scores)), "ratios": list(map(published.rounded, told))}


class ScheduleCalibration:
    """Measures a table of schedules on few matrices (`spmark.studies.contracts`)."""

    what: ClassVar[str] = "schedules"
    patterns: ClassVar[Sequence[str]] = ("seeded/*",)
    shipped = staticmethod(shipped_table)

    def calibrate(self, job: CalibrationJob) -> Constants:
        """Time schedules matrix by matrix, one of each kind after the other, and fit the table to what there is."""
        from spmark.studies.liteform.gpu import ScheduleTimer, compile_schedules

        compile_schedules(job.device, MEASURED_TYPES, _TIMED_AT, None)
        ends = time.monotonic() + job.seconds
        rows: list[ScheduleRow] = []
        warm = True
        for name, matrix in job.load(sorted(job.names, key=lambda name: (name.rpartition("_")[2], name))):
            for dtype, width in product(MEASURED_TYPES, _TIMED_AT):
                timers = [ScheduleTimer(matrix.csr, job.device, dtype, width) for _ in range(1 + warm)]
                rows.append([timer.row(name) for timer in timers][-1])  # the first of a process is slow
                warm = False
            if time.monotonic() >= ends:
                break
        kept = gzip.compress("".join(f"{row.model_dump_json()}\n" for row in rows).encode(), mtime=0)
        table, text = _fitted(rows, "spmark calibrate", hashlib.sha256(kept).hexdigest())
        told = [{"rows": len(rows), "entries": len(table.entries), "thirds": table.thirds}]
        return Constants({".json": text.encode(), ".ndjson.gz": kept}, told)


def _fitted(rows: Sequence[ScheduleRow], command: str, sha256: str) -> tuple[ScheduleTable, str]:
    """Fit a table to rows, which names the command and the rows; gives the text of its file, too."""
    counted = f"{len(rows)} rows of {len({row.matrix for row in rows})} matrices"
    table = make_table(rows, f"{command}: {counted}, SHA-256 {sha256}")
    return table, table.model_dump_json(exclude_defaults=True) + "\n"


def _fitted_table(job: TrainingJob) -> Outcome:
    """Fit a table to rows, which need no GPU."""
    rows, path = [row for path in job.files for row in read_rows(path, ScheduleRow)], job.out.with_suffix(".json")
    table, text = _fitted(rows, job.command, digest_of(job.files))
    with written(path, RecordError) as part:
        part.write_text(text, encoding="utf-8")
    answer = {"file": path, "entries": len(table.entries), "thirds": table.thirds}
    return Outcome(answer, f"{path}: {len(rows)} rows; {len(table.entries)} entries")
