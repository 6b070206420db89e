"""``spmark fetch candidates``: from a file, from a server and from git; what is damaged takes no place."""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from archives import tarred
from candidate_records import ARCHIVE, FILES, NAMES, digest, held, write_manifest
from file_server import FileServer, serving
from typer.testing import CliRunner

from spmark.datasets.cache import Cache
from spmark.impls.core.errors import DatasetError, RecordError
from spmark.report.candidates import PublishedFile, fetch_published
from spmark.suite.cli import main as cli

pytestmark = pytest.mark.full


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving() as files:
        files.files["/some.tar"] = ARCHIVE
        yield files


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.fixture
def into(tmp_path: Path) -> Path:
    return write_manifest(tmp_path / "reference")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "some.tar"
    path.write_bytes(ARCHIVE)
    return path


def fetch(into: Path, archive: Path | None = None, cache: Cache | None = None) -> tuple[list[PublishedFile], str]:
    return fetch_published(into, archive, (cache or Cache(into / "cache")).fetch)


def git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.invalid", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def put(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Give the records of a checkout whose last commit took the candidates away, with the manifest."""
    root = tmp_path / "checkout"
    reference = root / "report" / "reference"
    put(reference, FILES)
    subprocess.run(["git", "init", "--quiet", str(root)], check=True)
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "with")
    commit = git(root, "rev-parse", "HEAD")
    git(root, "rm", "--quiet", "-r", "report")
    write_manifest(reference, commit=commit)
    (root / ".gitignore").write_text("/report/reference/**/candidates.jsonl.*\n")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "without")
    return reference


def test_from_a_file(into: Path, archive: Path) -> None:
    fetched, origin = fetch(into, archive)
    assert held(into) == FILES
    assert ([one.path for one in fetched], origin) == (list(NAMES), str(archive))
    assert {(into / name).stat().st_mode & 0o777 for name in NAMES} == {0o644}


def test_what_is_there_and_right_is_left_alone(into: Path, archive: Path) -> None:
    fetch(into, archive)
    before = {name: (into / name).stat().st_ino for name in NAMES}
    archive.unlink()
    assert fetch(into, archive) == ([], ""), "nothing is read"
    assert {name: (into / name).stat().st_ino for name in NAMES} == before


@pytest.mark.parametrize("mode", ["w:gz", "w:xz"])
def test_an_archive_that_was_packed_anew_serves_as_well(mode: str, into: Path, archive: Path) -> None:
    archive.write_bytes(tarred(dict(reversed(FILES.items())), mode))
    fetch(into, archive)
    assert held(into) == FILES


def test_from_a_server(tmp_path: Path, server: FileServer, cache: Cache) -> None:
    into = write_manifest(tmp_path / "reference", url=server.url + "some.tar")
    server.drop_after = [3000]
    assert fetch(into, cache=cache)[1] == server.url + "some.tar"
    assert held(into) == FILES
    (into / NAMES[1]).unlink()
    asked = server.requests
    assert [one.path for one in fetch(into, cache=cache)[0]] == [NAMES[1]]
    assert server.requests == asked, "the archive stays in the cache"


def test_from_history_where_there_is_no_address(checkout: Path, cache: Cache) -> None:
    assert fetch(checkout, cache=cache)[1].startswith("commit ")
    assert held(checkout) == FILES
    assert git(checkout, "status", "--porcelain") == ""


@pytest.mark.parametrize("refusal", ["status", "content"])
def test_from_history_where_the_network_refuses(
    refusal: str, checkout: Path, server: FileServer, cache: Cache, caplog: pytest.LogCaptureFixture
) -> None:
    told = json.loads((checkout / "candidates.json").read_text())
    write_manifest(checkout, commit=told["commit"], url=server.url + "some.tar")
    if refusal == "status":
        server.files.clear()
    else:
        server.files["/some.tar"] = ARCHIVE[:-1] + b"x"
    assert fetch(checkout, cache=cache)[1] == f"commit {told['commit']}"
    assert held(checkout) == FILES
    assert "looking into git's history" in caplog.text


def test_neither_network_nor_history_says_both_and_what_to_do(tmp_path: Path, server: FileServer, cache: Cache) -> None:
    server.files.clear()
    into = write_manifest(tmp_path / "reference", url=server.url + "some.tar", commit="ab" * 20)
    told = r"404.*copy some\.tar .*--from FILE.*Nor has the history.*--unshallow"
    with pytest.raises(DatasetError, match=told) as raised:
        fetch(into, cache=cache)
    assert "SPMARK_MIRROR" not in str(raised.value), "that is for matrices"
    assert held(into) == {}


def test_a_commit_of_other_files_is_refused(checkout: Path, cache: Cache) -> None:
    put(checkout, FILES | {NAMES[0]: b"other"})
    git(checkout, "add", "--force", ".")
    git(checkout, "commit", "--quiet", "--message", "other")
    for name in NAMES:
        (checkout / name).unlink()
    write_manifest(checkout, commit=git(checkout, "rev-parse", "HEAD"))
    with pytest.raises(DatasetError, match=f"expected {digest(FILES[NAMES[0]])} but got {digest(b'other')}"):
        fetch(checkout, cache=cache)
    assert held(checkout) == {}


def test_a_damaged_file_takes_no_place_and_those_before_stay(into: Path, archive: Path) -> None:
    damaged = FILES[NAMES[1]][:-1] + b"x"
    archive.write_bytes(tarred(FILES | {NAMES[1]: damaged}, "w"))
    with pytest.raises(DatasetError, match=rf"some\.tar: .*expected {digest(FILES[NAMES[1]])} .*{digest(damaged)}"):
        fetch(into, archive)
    assert held(into) == {NAMES[0]: FILES[NAMES[0]]}
    archive.write_bytes(ARCHIVE)
    assert len(fetch(into, archive)[0]) == 2
    assert held(into) == FILES


def test_a_cut_archive_is_an_error_and_the_next_fetch_goes_on(into: Path, archive: Path) -> None:
    with tarfile.open(archive) as tar:
        second = tar.getmembers()[1].offset_data
    archive.write_bytes(ARCHIVE[: second + 5])
    with pytest.raises(DatasetError, match="complete archive"):
        fetch(into, archive)
    archive.write_bytes(tarred({name: FILES[name] for name in NAMES[:2]}, "w"))
    with pytest.raises(DatasetError, match=rf"complete archive .*{NAMES[2]}"):
        fetch(into, archive)
    assert held(into) == {name: FILES[name] for name in NAMES[:2]}
    archive.write_bytes(ARCHIVE)
    assert [one.path for one in fetch(into, archive)[0]] == [NAMES[2]]


@pytest.mark.parametrize("content", [b"mine", FILES[NAMES[0]][:-1] + b"x"])
def test_a_file_that_differs_is_never_replaced(content: bytes, into: Path, archive: Path) -> None:
    put(into, {NAMES[0]: content})
    with pytest.raises(
        DatasetError, match=rf"{NAMES[0]}: expected .*, found .*nothing was fetched: move what is yours"
    ):
        fetch(into, archive)
    assert held(into) == {NAMES[0]: content}


def test_a_link_in_a_file_s_place_is_not_followed(into: Path, archive: Path, tmp_path: Path) -> None:
    (into / NAMES[0]).parent.mkdir(parents=True)
    (into / NAMES[0]).symlink_to(tmp_path / "nowhere")
    with pytest.raises(DatasetError, match="found something else than a file"):
        fetch(into, archive)


def test_nothing_half_written_stays(into: Path, archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pooch.core.shutil.move", fail)
    with pytest.raises(DatasetError, match=rf"{NAMES[0]}: cannot be written \(No space left.*goes on with the files"):
        fetch(into, archive)
    assert held(into) == {}


def test_a_folder_without_a_manifest(tmp_path: Path, archive: Path) -> None:
    with pytest.raises(RecordError, match=r"candidates\.json: expected the manifest .*, found no such file.*--into"):
        fetch(tmp_path, archive)
    (tmp_path / "candidates.json").write_text('{"schema_version": 1}')
    with pytest.raises(RecordError, match="expected the manifest of published candidates"):
        fetch(tmp_path, archive)


def invoke(*words: object):
    return CliRunner().invoke(cli.app, ["fetch", *map(str, words)])


def test_the_command_tells_what_it_brought(into: Path, archive: Path) -> None:
    ended = invoke("candidates", "--into", into, "--from", archive, "--json")
    told = json.loads(ended.stdout)
    assert (told["from"], [one["path"] for one in told["fetched"]]) == (str(archive), list(NAMES))
    (into / NAMES[2]).unlink()
    size = len(FILES[NAMES[2]])
    ended = invoke("candidates", "--into", into, "--from", archive)
    assert ended.stdout == f"{into}: fetched 1 files ({size} bytes) from {archive}\n"
    assert invoke("candidates", "--into", into).stdout == f"{into}: all files are there\n"


def test_the_command_s_folder_is_a_checkout_s(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkout.parents[1])
    assert invoke("candidates").stdout.startswith("report/reference: fetched 3 files")
    assert held(checkout) == FILES


@pytest.mark.parametrize("words", [("cora", "--from", "x"), ("cora", "--into", "x"), ("candidates", "--set", "a=b")])
def test_options_go_with_what_they_are_of(words: tuple[str, ...]) -> None:
    ended = invoke(*words)
    assert ended.exit_code == 2
    assert "expected" in ended.stderr
