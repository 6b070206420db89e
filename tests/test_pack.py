"""``scripts/reference.py pack``: one archive of all candidates, the same bytes each time, and their manifest."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tarfile
from pathlib import Path
from types import ModuleType

import pytest
from candidate_records import FILES, NAMES, held
from scripts_by_name import load_script

from spmark.datasets.cache import Cache
from spmark.report.candidates import CandidateAsset, fetch_published, read_asset

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("reference")


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    """Give published records in a checkout whose last commit has the candidates."""
    folder = tmp_path / "report" / "reference"
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(content)
        (folder / name).with_name("records.jsonl.gz").touch()
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    commit(tmp_path)
    return folder


def commit(root: Path) -> str:
    git = ["git", "-C", str(root), "-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "--quiet", "--message", "m"], check=True)
    return subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()


def packed(script: ModuleType, reference: Path, *words: str) -> CandidateAsset:
    out = reference.parents[1] / "out"
    script.app(["pack", str(reference), "--out", str(out), *words], standalone_mode=False)
    return read_asset(reference / "candidates.json")


def test_the_same_files_give_the_same_bytes(script: ModuleType, reference: Path, tmp_path: Path) -> None:
    first = packed(script, reference)
    archive, manifest = tmp_path / "out" / first.archive, reference / "candidates.json"
    bytes_of = archive.read_bytes(), manifest.read_bytes()
    for name in NAMES:
        os.utime(reference / name, (1e9, 1e9))
        (reference / name).chmod(0o600)
    archive.unlink()
    packed(script, reference)
    assert (archive.read_bytes(), manifest.read_bytes()) == bytes_of


def test_an_archive_says_nothing_of_the_machine(script: ModuleType, reference: Path, tmp_path: Path) -> None:
    asset = packed(script, reference)
    with tarfile.open(tmp_path / "out" / asset.archive) as tar:
        members = tar.getmembers()
    assert [member.name for member in members] == sorted(FILES)
    facts = {(m.mtime, m.uid, m.gid, m.uname, m.gname, m.mode, m.type) for m in members}
    assert facts == {(0, 0, 0, "", "", 0o644, tarfile.REGTYPE)}


def test_the_manifest_names_archive_files_and_commit(script: ModuleType, reference: Path, tmp_path: Path) -> None:
    asset = packed(script, reference, "--url", "https://example.org/o/spmark/", "--tag", "records-1")
    archive = tmp_path / "out" / asset.archive
    assert asset.url == f"https://example.org/o/spmark/releases/download/records-1/{asset.archive}"
    assert (asset.bytes, asset.sha256) == (archive.stat().st_size, hashlib.sha256(archive.read_bytes()).hexdigest())
    assert {one.path: one.sha256 for one in asset.files} == {
        name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()
    }
    head = subprocess.run(["git", "-C", str(reference), "rev-parse", "HEAD"], capture_output=True, text=True).stdout
    assert asset.commit == head.strip()
    assert packed(script, reference, "--tag", "records-1").url == asset.url, "an address stays while the archive does"


def test_a_fetch_brings_what_was_packed(script: ModuleType, reference: Path, tmp_path: Path) -> None:
    asset = packed(script, reference)
    records = {name: text for name, text in held(reference).items() if name not in FILES}
    for name in NAMES:
        (reference / name).unlink()
    fetch_published(reference, tmp_path / "out" / asset.archive, Cache(tmp_path / "cache").fetch)
    assert held(reference) == FILES | records


def test_the_commit_stays_after_the_files_are_gone_from_git(
    script: ModuleType, reference: Path, tmp_path: Path
) -> None:
    first = packed(script, reference)
    (tmp_path / ".gitignore").write_text("candidates.jsonl.*\n")
    subprocess.run(["git", "-C", str(tmp_path), "rm", "-r", "--quiet", "--cached", "report"], check=True)
    assert commit(tmp_path) != first.commit
    assert packed(script, reference) == first
    (reference / NAMES[0]).write_bytes(b"measured again")
    again = packed(script, reference)
    assert (again.commit, again.url) == (None, None), "no commit has these files, and the archive is another one"
    assert again.tag != first.tag


def test_files_that_are_published_have_to_be_here(script: ModuleType, reference: Path) -> None:
    packed(script, reference)
    (reference / NAMES[1]).unlink()
    with pytest.raises(SystemExit, match=f"expected {NAMES[1]}, found none: run `spmark fetch candidates`"):
        packed(script, reference)
