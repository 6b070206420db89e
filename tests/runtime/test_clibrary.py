"""Generated C: compiled once for each text, loaded from sealed files only, refused with the compiler's log."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import pytest

from spmark.impls.core.errors import CompileError
from spmark.impls.runtime import clibrary
from spmark.impls.runtime.clibrary import load_c

TEXT = "int answer(void) {{ return {}; }}\n"


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the names that the compiler is asked for, beside an empty cache."""
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path))
    names: list[str] = []
    run_now = clibrary.run_gcc

    def run(command: Sequence[str], text: str, source: str, instance: str) -> str:
        names.extend([instance] * (source == "generated C"))
        return run_now(command, text, source, instance)

    monkeypatch.setattr(clibrary, "run_gcc", run)
    return names


def test_a_text_is_compiled_once_and_another_text_anew(compiled: list[str]) -> None:
    assert load_c(TEXT.format(41), "first").answer() == 41
    assert load_c(TEXT.format(41), "again").answer() == 41
    assert load_c(TEXT.format(42), "other").answer() == 42
    assert compiled == ["first", "other"]


def test_a_damaged_library_is_compiled_again(compiled: list[str], tmp_path: Path) -> None:
    load_c(TEXT.format(43), "first")
    (entry,) = (path for path in tmp_path.rglob("*") if path.is_file())
    entry.write_bytes(entry.read_bytes()[:-100] + bytes(100))
    assert load_c(TEXT.format(43), "second").answer() == 43
    assert compiled == ["first", "second"]


def test_a_text_that_does_not_compile_carries_the_log(compiled: list[str]) -> None:
    with pytest.raises(CompileError, match="'undeclared' undeclared") as caught:
        load_c("int answer(void) { return undeclared; }\n", "broken")
    assert caught.value.instance == "broken"


def test_loops_run_on_as_many_threads_as_are_asked_for(compiled: list[str]) -> None:
    text = """
        #include <omp.h>
        int most(int threads) {
            int seen = 0;
            #pragma omp parallel num_threads(threads)
            if (omp_get_thread_num() == 0) seen = omp_get_num_threads();
            return seen;
        }
    """
    most = load_c(text, "threads").most
    most.argtypes = [ctypes.c_int]
    assert [most(threads) for threads in (1, 2, 3)] == [1, 2, 3]
