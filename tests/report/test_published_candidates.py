"""The manifest of candidates is of the files that are here, and git keeps a small sample of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spmark.datasets.cache import file_digest
from spmark.report.candidates import CANDIDATES, MANIFEST, read_asset
from spmark.report.records import record_files

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "report" / "reference"
ASSET = read_asset(REFERENCE / MANIFEST)
FILES = {one.path: one for one in ASSET.files}
SAMPLE = re.findall(rf"^!/report/reference/(.*)/{CANDIDATES}\.\*$", (ROOT / ".gitignore").read_text(), re.MULTILINE)
KEPT = [path for path in FILES if path.rpartition("/")[0] in SAMPLE]
"""What .gitignore leaves to git."""
PACK = "run `scripts/reference.py pack` after candidates have changed"


@pytest.mark.parametrize("path", [path for path in FILES if path in KEPT or (REFERENCE / path).exists()])
def test_a_file_that_is_here_is_the_one_of_the_manifest(path: str) -> None:
    file = REFERENCE / path
    assert (file.stat().st_size, file_digest(file)) == (FILES[path].bytes, FILES[path].sha256), PACK


def test_each_file_of_the_manifest_belongs_to_records() -> None:
    folders = {file.parent for file in record_files([REFERENCE])}
    assert {(REFERENCE / path).resolve().parent for path in FILES} <= folders
