"""What is published can be drawn as one page: every file that is taken for records holds records."""

from __future__ import annotations

from pathlib import Path

import pytest

import spmark.report
from spmark.records.rowfile import read_rows
from spmark.records.schema import Measurement
from spmark.report.records import record_files

pytestmark = pytest.mark.full

REFERENCE = Path(spmark.report.__file__).parent / "reference"
FILES = record_files([REFERENCE / "h200", REFERENCE / "cpu"])


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.name}")
def test_the_first_line_is_a_record(file: Path) -> None:
    assert next(read_rows(file, Measurement)).case_id
