"""The manifest of published candidates: strict, without names that lead out; and which candidates are not there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from candidate_records import FILES, NAMES, write_manifest

from spmark.impls.core.errors import RecordError
from spmark.report.candidates import absence, absent_candidates, read_asset


def written(folder: Path, **changes: Any) -> Path:
    return write_manifest(folder, **changes) / "candidates.json"


def test_a_manifest_is_read(tmp_path: Path) -> None:
    asset = read_asset(written(tmp_path, url="https://example.org/releases/some.tar", commit="ab" * 20))
    assert [one.path for one in asset.files] == list(NAMES)
    assert [one.bytes for one in asset.files] == [len(FILES[name]) for name in NAMES]


@pytest.mark.parametrize(
    "changes",
    [
        {"schema_version": 2},
        {"more": 1},
        {"tag": "../evil"},
        {"tag": "-x"},
        {"archive": "a/b.tar"},
        {"archive": "some.zip"},
        {"url": "file:///etc/passwd"},
        {"url": "https://example.org/a b"},
        {"bytes": "17"},
        {"bytes": 0},
        {"bytes": 1 << 40},
        {"sha256": "ab"},
        {"sha256": "AB" * 32},
        {"commit": "HEAD"},
        {"commit": "--output=x"},
        {"files": []},
    ],
)
def test_anything_else_is_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"candidates\.json: expected the manifest of published candidates, found"):
        read_asset(written(tmp_path, **changes))


@pytest.mark.parametrize(
    "path",
    [
        "/etc/candidates.jsonl.gz",
        "../candidates.jsonl.gz",
        "h200/../../candidates.jsonl.gz",
        "h200//candidates.jsonl.gz",
        "h200/./candidates.jsonl.gz",
        "h200\\x/candidates.jsonl.gz",
        "h200/a b/candidates.jsonl.gz",
        "h200/\x1b[0m/candidates.jsonl.gz",
        ".git/candidates.jsonl.gz",
        "candidates.jsonl.gz",
        "h200/first/records.jsonl.gz",
        "h200/first/candidates.jsonl.gz\n",
    ],
)
def test_a_path_stays_among_the_records(path: str, tmp_path: Path) -> None:
    file = {"path": path, "bytes": 1, "sha256": "0" * 64}
    with pytest.raises(RecordError, match="folders of plain names"):
        read_asset(written(tmp_path, files=[file]))


def recorded(root: Path) -> Path:
    """Give folders of records of which a manifest says that all but the last had candidates."""
    for name in ("first", "second", "third", "fourth"):
        (root / "h200" / name).mkdir(parents=True, exist_ok=True)
        (root / "h200" / name / "records.jsonl.gz").touch()
    return write_manifest(root)


def test_candidates_that_are_not_there_are_known_by_their_records(tmp_path: Path) -> None:
    root = recorded(tmp_path.resolve() / "reference")
    (root / NAMES[1]).touch()
    folders = [(root / name).parent for name in NAMES]
    assert list(absent_candidates([root])) == [folders[0], folders[2]]
    assert list(absent_candidates([folders[2] / "records.jsonl.gz"])) == [folders[2]]
    assert absent_candidates([root / "h200" / "fourth", folders[1]]) == {}


def test_unpacked_candidates_are_there_as_well(tmp_path: Path) -> None:
    root = recorded(tmp_path)
    (root / "h200" / "first" / "candidates.jsonl").touch()
    assert absent_candidates([root / "h200" / "first"]) == {}


def test_a_file_of_that_name_which_is_no_manifest_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = recorded(tmp_path)
    (root / "candidates.json").write_text(json.dumps(["of", "somebody", "else"]))
    assert absent_candidates([root]) == {}
    assert "passed over" in caplog.text


def test_absence_is_told_with_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert absence({}) == ""
    root = recorded(tmp_path.resolve() / "report" / "reference")
    told = absence(absent_candidates([root]))
    size = sum(map(len, FILES.values()))
    assert f"beside the records of first, second, third, found none: these files are published apart ({size:,}" in told
    assert told.endswith(f"`spmark fetch candidates --into {root}` brings them")
    monkeypatch.chdir(tmp_path)
    assert absence(absent_candidates([root])).endswith("`spmark fetch candidates` brings them")
