"""One file name serves all versions of cuSPARSE: which one a process gets; the libraries are some lines of C++."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import fake_cusparse
import pytest
from compilers import needs_compilers

from spmark.impls.core.errors import DeviceError
from spmark.impls.runtime.sparse_library import SparseLibrary, find_sparse_library, loaded_files

pytestmark = needs_compilers


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a cuSPARSE 12.6.3 in a toolkit, the one that a process finds by itself."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    toolkit = tmp_path / "toolkit" / "lib64"
    file = fake_cusparse.compiled(toolkit, "12.6.3").rename(toolkit / f"{fake_cusparse.SONAME}.6.3.9")
    (toolkit / fake_cusparse.SONAME).symlink_to(file.name)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(toolkit))
    return file


@pytest.fixture
def new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a cuSPARSE 12.9.4 as pip installs it into spmark's cache."""
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path / "cache"))
    return fake_cusparse.installed(tmp_path / "cache" / "cusparse" / "12.9", "12.9.4.2")


def test_what_a_process_finds_by_itself_is_told(old: Path) -> None:
    assert find_sparse_library() == SparseLibrary(old, "12.6.3.9")
    assert loaded_files() == [], "the process that asks loads none"


def test_a_machine_without_any_has_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert find_sparse_library() is None


@pytest.mark.parametrize("asked", ["12.9.4.2", "12.9", "12"])
def test_a_version_finds_the_newest_that_it_begins(old: Path, new: Path, asked: str) -> None:
    assert find_sparse_library(asked) == SparseLibrary(new, "12.9.4.2")
    assert find_sparse_library("12.6") == SparseLibrary(old, "12.6.3.9")


def test_a_path_finds_a_file_or_the_one_of_a_folder(old: Path, new: Path) -> None:
    assert find_sparse_library(str(new)) == find_sparse_library(str(new.parents[3])) == SparseLibrary(new, "12.9.4.2")
    assert find_sparse_library(str(old.with_name(fake_cusparse.SONAME))) == SparseLibrary(old, "12.6.3.9")
    assert find_sparse_library(str(old.parents[1])) == SparseLibrary(old, "12.6.3.9")


def test_a_missing_version_says_what_was_found_and_what_to_do(old: Path, new: Path) -> None:
    for asked in ("12.4", "12.9.4.20", "1"):
        with pytest.raises(DeviceError) as refused:
            find_sparse_library(asked)
        words = str(refused.value)
        assert f"expected a cuSPARSE of version {asked}, found " in words
        assert f"12.9.4.2 ({new})" in words
        assert f"12.6.3.9 ({old})" in words
        assert f"--target {new.parents[4] / asked} 'nvidia-cusparse=={asked}.*'" in words


def test_a_path_that_holds_none_or_several_or_something_else_is_refused(old: Path, tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match=r"found none: name the library's file"):
        find_sparse_library(str(tmp_path / "nowhere"))
    second = fake_cusparse.compiled(old.parents[1] / "lib", "12.5.1")
    with pytest.raises(DeviceError, match=f"found {second} and {old}: name the library's file"):
        find_sparse_library(str(old.parents[1]))
    text = tmp_path / "libcusparse.so.12"
    text.write_text("no library")
    with pytest.raises(DeviceError, match=f"{text}: expected a cuSPARSE that loads, found: OSError: .*too short"):
        find_sparse_library(str(text))
    other = fake_cusparse.user_of(old, tmp_path)
    with pytest.raises(DeviceError, match=r"libuser.so: expected a cuSPARSE that loads, found:"):
        find_sparse_library(str(other))


CHOSEN = """
import ctypes, sys
from pathlib import Path
from cuda.pathfinder import load_nvidia_dynamic_lib
from spmark.impls.runtime.sparse_library import load_sparse_library, loaded_files
chosen, user = map(Path, sys.argv[1:])
def others():
    minor = ctypes.CDLL(str(user)).ask(1)  # as libtorch_cuda.so wants it
    return minor, load_nvidia_dynamic_lib("cusparse").abs_path  # as CuPy and spmark load it
"""


def in_a_process(order: str, chosen: Path, user: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", CHOSEN + order, chosen, user], capture_output=True, text=True, check=False
    )
    return done.stdout.splitlines() + done.stderr.splitlines()[-1:]


@pytest.mark.parametrize("first", [True, False])
def test_the_first_that_a_process_loads_serves_the_others(old: Path, new: Path, tmp_path: Path, first: bool) -> None:
    chosen, by_itself = (new, old) if first else (old, new)
    user = fake_cusparse.user_of(by_itself, tmp_path / "user")
    told = in_a_process("load_sparse_library(chosen); print(*others()); print(*loaded_files())", chosen, user)
    assert told == [f"{9 if first else 6} {chosen}", str(chosen)]


def test_a_process_that_has_loaded_another_before_is_refused(old: Path, new: Path, tmp_path: Path) -> None:
    user = fake_cusparse.user_of(old, tmp_path / "user")
    (words,) = in_a_process("others(); load_sparse_library(chosen)", new, user)
    assert f"expected {new} as the only cuSPARSE of this process, found " in words
    assert str(old) in words
