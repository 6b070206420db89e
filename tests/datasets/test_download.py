"""Downloads against a loopback server that drops, truncates, redirects to nothing and serves wrong content."""

from __future__ import annotations

import hashlib
import socket

import pytest

from spmark.datasets import cache as download
from spmark.datasets.cache import Cache
from spmark.impls.core.errors import DatasetError

CONTENT = bytes(range(256)) * 2000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(download, "PAUSE_S", 0.001)


def fetch(server, path, sha256=DIGEST):
    """Fetch to ``path``, whose folder is the cache's folder of downloads."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return Cache(path.parents[1]).fetch(server.url + "file", path.name, sha256)


@pytest.fixture
def place(tmp_path):
    """Give the place of a download that has a folder, but is not there."""
    (tmp_path / "downloads").mkdir()
    return tmp_path / "downloads" / "f"


def test_whole(server, place):
    server.files["/file"] = CONTENT
    assert fetch(server, place) == place
    assert place.read_bytes() == CONTENT
    assert sorted(p.name for p in place.parent.iterdir()) in (["f"], ["f", "f.lock"])


def test_dropped_connection_is_resumed(server, place):
    server.files["/file"] = CONTENT
    server.drop_after = [100_000, 150_000]
    fetch(server, place)
    assert place.read_bytes() == CONTENT
    starts = [int(r.removeprefix("bytes=").rstrip("-")) for r in server.ranges]
    assert len(starts) == 2
    assert 0 < starts[0] < starts[1]


def test_resumed_by_a_later_run(server, place):
    server.files["/file"] = CONTENT
    place.with_name("f.part").write_bytes(CONTENT[:70_000])
    place.with_name("f.part.validator").write_text(server.tag(CONTENT))
    fetch(server, place)
    assert server.ranges == ["bytes=70000-"]
    assert place.read_bytes() == CONTENT


@pytest.mark.parametrize("validator", ['"of another version"', None])
def test_a_part_of_another_version_is_not_continued(server, place, validator):
    server.files["/file"] = CONTENT
    place.with_name("f.part").write_bytes(b"x" * 70_000)
    if validator:
        place.with_name("f.part.validator").write_text(validator)
    fetch(server, place)
    assert place.read_bytes() == CONTENT


def test_a_part_longer_than_the_file_starts_over(server, place):
    server.files["/file"] = CONTENT
    place.with_name("f.part").write_bytes(b"x" * (len(CONTENT) + 5))
    place.with_name("f.part.validator").write_text(server.tag(CONTENT))
    fetch(server, place)
    assert place.read_bytes() == CONTENT


def test_always_dropped(server, place):
    server.files["/file"] = CONTENT
    server.ignore_ranges = True
    server.drop_after = [1000] * 10
    with pytest.raises(DatasetError, match=r"/file.*5 attempts failed.*SPMARK_MIRROR.*copy the file to .*f"):
        fetch(server, place)
    assert not place.exists()


def test_server_error_is_tried_again(server, place):
    server.files["/file"] = CONTENT
    server.statuses = [503, 429]
    fetch(server, place)
    assert place.read_bytes() == CONTENT


def test_not_found_is_final(server, place):
    with pytest.raises(DatasetError, match=r"404.*SPMARK_MIRROR"):
        fetch(server, place)
    assert server.requests == 1


def test_wrong_checksum(server, place):
    server.files["/file"] = b"something else"
    found = hashlib.sha256(b"something else").hexdigest()
    with pytest.raises(DatasetError, match=f"{DIGEST} but got {found}"):
        fetch(server, place)
    assert not place.exists()


def test_full_disk(server, place):
    server.files["/file"] = CONTENT
    place.with_name("f.part").symlink_to("/dev/full")
    with pytest.raises(DatasetError, match="No space left on device"):
        fetch(server, place)


def test_cache_fetches_once_and_notices_damage_and_another_file(server, tmp_path):
    server.files["/file"] = CONTENT
    cache = Cache(tmp_path)
    path = cache.fetch(server.url + "file", "a/f")
    assert cache.fetch(server.url + "file", "a/f") == path
    assert server.requests == 1
    path.write_bytes(CONTENT[:-1])
    assert cache.fetch(server.url + "file", "a/f").read_bytes() == CONTENT, "what is damaged is fetched again"
    assert server.requests == 2
    path.unlink()
    server.files["/file"] = CONTENT[:-1]
    with pytest.raises(DatasetError, match=rf"{DIGEST}.*delete .*a/f\.sha256 if the publisher replaced the file"):
        cache.fetch(server.url + "file", "a/f")
    assert not path.exists()


def test_cache_takes_a_copied_file(server, tmp_path):
    place = tmp_path / "downloads" / "a" / "f"
    place.parent.mkdir(parents=True)
    place.write_bytes(CONTENT)
    assert Cache(tmp_path).fetch(server.url + "file", "a/f", DIGEST).read_bytes() == CONTENT
    assert server.requests == 0


def test_without_a_network_there_is_one_attempt_and_one_short_line(monkeypatch, tmp_path, caplog):
    asked = []

    def getaddrinfo(*arguments, **named):
        asked.append(arguments)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    for variable in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(DatasetError, match=r"the name data\.example cannot be resolved \(Name or service not") as told:
        Cache(tmp_path).fetch("https://data.example/archive.zip", "f")
    assert len(asked) == 1
    assert "SPMARK_MIRROR" in str(told.value)
    assert len(str(told.value)) < 250 + len(str(tmp_path))
    assert not caplog.records


def test_what_failed_is_told_without_what_wraps_it(tmp_path, caplog):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/file"
        with pytest.raises(DatasetError, match="Connection refused") as told:
            Cache(tmp_path).fetch(url, "f")
    assert "5 attempts failed" in str(told.value)
    assert "HTTPConnectionPool" not in str(told.value) + caplog.text
