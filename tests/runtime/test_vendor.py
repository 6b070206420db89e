"""A vendor's library: its handle, and statuses that become errors of ours; the library is some lines of C++."""

from __future__ import annotations

import subprocess
from ctypes import POINTER, c_int, c_void_p
from pathlib import Path
from types import SimpleNamespace

import pytest
from compilers import needs_compilers

from spmark.impls.core.errors import BuildError, DeviceError, UnsupportedError
from spmark.impls.runtime.vendor import VendorLibrary

pytestmark = needs_compilers
SOURCE = """
extern "C" int makeHandle(void** handle) { *handle = (void*)0x1234; return 0; }
extern "C" int answer(void* handle, int status) { return handle == (void*)0x1234 ? status : 99; }
extern "C" const char* wordsOf(int status) { return status == 5 ? "too wide" : "something else"; }
"""
SIGNATURES = {"makeHandle": (POINTER(c_void_p),), "answer": (c_void_p, c_int)}


def open_library(signatures: dict[str, tuple[type, ...]]) -> VendorLibrary:
    return VendorLibrary("mine", signatures, (5,), (7,), create="makeHandle", describe="wordsOf")


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, library = tmp_path / "mine.cpp", tmp_path / "libmine.so"
    source.write_text(SOURCE)
    subprocess.run(["g++", "-shared", "-fPIC", "-o", library, source], check=True)
    place = SimpleNamespace(abs_path=str(library))
    monkeypatch.setattr("cuda.pathfinder.load_nvidia_dynamic_lib", lambda name: place)


@pytest.mark.usefixtures("compiled")
def test_statuses_become_errors_with_the_librarys_words() -> None:
    library = open_library(SIGNATURES)
    assert library.handle.value == 0x1234
    library("answer", library.handle, 0)
    for status, error, words in (
        (5, UnsupportedError, "answer answered 5: too wide"),
        (7, MemoryError, "answer answered 7: something else"),
        (8, BuildError, "answer answered 8: something else"),
    ):
        with pytest.raises(error, match=words):
            library("answer", library.handle, status)


@pytest.mark.usefixtures("compiled")
def test_a_library_without_a_function_does_not_fit() -> None:
    with pytest.raises(DeviceError, match=r"expected mine, found none that fits .*missing"):
        open_library({**SIGNATURES, "missing": (c_int,)})
