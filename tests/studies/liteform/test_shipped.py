"""The models and the table that ship were made from rows that ship, of the tuning half and of seeded matrices."""

from __future__ import annotations

import gzip
import json
from importlib.resources import files
from pathlib import Path

import pytest

from spmark.datasets.origins import other_ids
from spmark.datasets.sweep.reading import packaged_lists, read_list
from spmark.impls.liteform.predictor import find, load
from spmark.impls.liteform.schedule import ScheduleTable, table_for
from spmark.records.rowfile import read_rows
from spmark.studies.contracts import TrainingJob
from spmark.studies.liteform.schedules import ScheduleRow, make_table
from spmark.studies.rows import digest_of
from spmark.studies.table import find_contract

pytestmark = pytest.mark.full

FOLDER = Path(str(files("spmark.impls.liteform")))
LABELS = FOLDER / "models" / "nvidia-h200.labels.jsonl.gz"
SCHEDULES = FOLDER / "schedules" / "nvidia-h200.ndjson.gz"


@pytest.mark.parametrize("path", [LABELS, SCHEDULES], ids=["labels", "schedules"])
def test_rows_are_of_the_tuning_half_and_of_seeded_matrices(path: Path) -> None:
    allowed = {next(other_ids(spec)) for spec in read_list(packaged_lists()["tuning_graphs"])}
    matrices = {json.loads(line)["matrix"] for line in gzip.open(path, "rt", encoding="utf-8")}
    real = {matrix for matrix in matrices if not matrix.startswith("seeded/")}
    assert real == allowed
    assert len(matrices) > len(real)


def test_what_ships_names_its_rows() -> None:
    for name in ("nvidia-h200", "nvidia-h200-published"):
        assert find(name).card.labels_sha256 == digest_of([LABELS])
    assert not find("nvidia-h200-published").by_width
    table = table_for("nvidia-h200")
    assert isinstance(table, ScheduleTable)
    assert table.made_with.endswith(digest_of([SCHEDULES]))


@pytest.mark.full
def test_the_rows_give_what_ships(tmp_path: Path) -> None:
    """Arrays are compared, not files: a card names the versions of libraries."""
    pytest.importorskip("sklearn")
    training = find_contract("predictors", "liteform")
    for model, as_published in (("nvidia-h200", False), ("nvidia-h200-published", True)):
        job = TrainingJob(model, tmp_path / f"{model}.npz", "command", files=[LABELS], as_published=as_published)
        training.train(job)
        again, shipped = load(job.out), find(model)
        for name in ("selection", "partitions"):
            old, new = getattr(shipped, name), getattr(again, name)
            assert old.classes.tolist() == new.classes.tolist()
            assert all((a == b).all() for a, b in zip(vars(old).values(), vars(new).values(), strict=True))
    table = make_table(list(read_rows(SCHEDULES, ScheduleRow)), "command")
    shipped_table = table_for("nvidia-h200")
    assert shipped_table is not None
    assert table.model_dump(exclude={"made_with"}) == shipped_table.model_dump(exclude={"made_with"})
