"""Archives of named files: each comes out once, and nothing comes out of what is odd, foreign, too large or cut off."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path

import pytest
from archives import tarred, zipped

from spmark.datasets.readers.archive import unpacked_files
from spmark.impls.core.errors import DatasetError

FILES = {"a/x": b"first" * 300, "b/x": b"second" * 4000, "c/x": b"third"}
SIZES = {name: len(content) for name, content in FILES.items()}


def unpacked(path: Path, content: bytes) -> dict[str, bytes]:
    path.write_bytes(content)
    return {name: file.read_bytes() for name, file in unpacked_files(path, SIZES)}


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_every_member_comes_out(mode: str, tmp_path: Path) -> None:
    assert unpacked(tmp_path / "a.tar", tarred(FILES, mode)) == FILES


def test_an_unpacked_member_does_not_stay(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tarred(FILES, "w"))
    files = [file for _, file in unpacked_files(tmp_path / "a.tar", SIZES)]
    assert len(files) == 3
    assert not any(file.exists() for file in files)


@pytest.mark.parametrize("name", ["/a/x", "../a/x", "a/../../x", "a\\..\\..\\x"])
def test_a_name_that_leads_out_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"expected plain files inside the archive's folder, found .*leads out"):
        unpacked(tmp_path / "a.tar", tarred({name: b"x"}, "w"))


def test_a_link_is_refused_even_under_a_known_name(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"found 'link.mtx' \(a link"):
        unpacked(tmp_path / "a.tar", tarred(FILES, "w", link="/etc/passwd"))
    with tarfile.open(tmp_path / "b.tar", "w") as tar:
        member = tarfile.TarInfo("a/x")
        member.type, member.linkname = tarfile.LNKTYPE, "/etc/passwd"
        tar.addfile(member)
    with pytest.raises(DatasetError, match=r"found 'a/x' \(a link"):
        unpacked(tmp_path / "c.tar", (tmp_path / "b.tar").read_bytes())


def test_a_member_that_nobody_named_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"at most 3 known members, each once, found 'a/y', which is none of them"):
        unpacked(tmp_path / "a.tar", tarred({"a/y": b"x"}, "w"))


def test_a_member_that_comes_twice_is_refused(tmp_path: Path) -> None:
    whole = tarred({"a/x": FILES["a/x"]}, "w", form=tarfile.USTAR_FORMAT)
    one = whole[: 512 + 1536]
    with pytest.raises(DatasetError, match=r"found 'a/x', again"):
        unpacked(tmp_path / "a.tar", one + whole)


@pytest.mark.parametrize("size", [1499, 1501, 10**7])
def test_a_member_of_another_size_is_refused_before_it_is_unpacked(size: int, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=f"expected 1,500 bytes of a/x, found {size:,}"):
        unpacked(tmp_path / "a.tar", tarred({"a/x": b"x" * size}, "w:gz"))


def test_a_cut_archive_gives_what_was_whole(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tarred(FILES, "w", form=tarfile.USTAR_FORMAT)[:10_000])
    given: dict[str, bytes] = {}
    with pytest.raises(DatasetError, match=r"a\.tar: expected a complete archive, found .*corrupt or truncated"):
        given.update((name, file.read_bytes()) for name, file in unpacked_files(tmp_path / "a.tar", SIZES))
    assert given == {"a/x": FILES["a/x"]}


@pytest.mark.parametrize(
    "content",
    [b"", b"no archive", gzip.compress(b"no archive", mtime=0), zipped(FILES)],
    ids=["empty", "text", "gzip of text", "zip"],
)
def test_what_is_no_tar_is_refused(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="expected a complete archive"):
        unpacked(tmp_path / "a.tar", content)
