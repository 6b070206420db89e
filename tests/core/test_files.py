"""Files that are whole, and sealed cache entries."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spmark.impls.core.files import cache_root, read_sealed, whole, write_sealed


def content(seed: int = 0) -> bytes:
    return np.random.default_rng(seed).bytes(1000)


def test_a_file_takes_its_name_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file"
    with whole(path) as part:
        part.write_bytes(content())
        assert not path.exists()
    assert path.read_bytes() == content()
    assert [file.name for file in path.parent.iterdir()] == ["file"]


def test_what_was_there_stays_when_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content())
    with pytest.raises(RuntimeError, match="killed"), whole(path) as part:
        part.write_bytes(content(1)[:10])
        raise RuntimeError("killed")
    assert path.read_bytes() == content()
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("mode", "foreign", "used"),
    [(0o755, False, True), (0o700, False, True), (0o757, False, False), (0o1777, False, False), (0o755, True, False)],
)
def test_a_cache_that_others_may_write_to_is_not_used(
    mode: int, foreign: bool, used: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """Code and pickles are read out of it: whoever may write there could run anything here."""
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(mode)
    if foreign and os.geteuid() == 0:
        os.chown(folder, 12345, -1)
    elif foreign:
        monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    monkeypatch.setenv("SPMARK_CACHE", str(folder))
    assert (cache_root() == folder) == used
    assert cache_root() == cache_root()
    assert len(caplog.records) == (not used), "it is said once"
    if not used:
        assert not list(folder.iterdir())
        assert cache_root().stat().st_mode & 0o777 == 0o700


def test_a_sealed_entry_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "entry"
    for text in (content(), b"", b"\n\n", b"a\nb"):
        write_sealed(path, text)
        assert read_sealed(path) == text


@pytest.mark.parametrize("place", [0, 63, 64, 65, 500, -1])
def test_one_changed_byte_is_noticed(tmp_path: Path, place: int) -> None:
    path = tmp_path / "entry"
    write_sealed(path, content())
    damaged = bytearray(path.read_bytes())
    damaged[place] ^= 1
    path.write_bytes(damaged)
    assert read_sealed(path) is None


def test_an_entry_that_is_cut_moved_or_missing_is_absent(tmp_path: Path) -> None:
    path = tmp_path / "entry"
    assert read_sealed(path) is None
    write_sealed(path, content())
    (tmp_path / "other").write_bytes(path.read_bytes())
    assert read_sealed(tmp_path / "other") is None
    path.write_bytes(path.read_bytes()[:-1])
    assert read_sealed(path) is None
    path.write_bytes(b"")
    assert read_sealed(path) is None


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    write_sealed(tmp_path / "file" / "entry", content())
    assert read_sealed(tmp_path / "file" / "entry") is None
