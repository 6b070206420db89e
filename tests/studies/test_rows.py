"""What is asked of files of measured rows, whatever implementation wrote them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from pydantic import ValidationError

from spmark.impls.core.errors import DatasetError
from spmark.studies.rows import Row, digest_of, one_device


def test_rows_are_of_one_device() -> None:
    assert one_device(["a", "a"]) == "a"
    for devices, names in (([], "none"), (["b", "a", "b"], "a, b")):
        with pytest.raises(DatasetError, match=f"^expected schedules of one device, found {names}$"):
            one_device(devices, "expected schedules")


def test_a_row_refuses_what_it_does_not_know() -> None:
    assert Row.model_validate_json('{"schema_version": 1}') == Row()
    for text in ('{"schema_version": 2}', '{"more": 1}'):
        with pytest.raises(ValidationError):
            Row.model_validate_json(text)


def test_the_digest_is_of_all_files_in_their_order(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b")]
    for path in paths:
        path.write_text(path.name)
    assert digest_of(paths) == hashlib.sha256(b"ab").hexdigest()
    assert digest_of(paths[::-1]) == hashlib.sha256(b"ba").hexdigest()
