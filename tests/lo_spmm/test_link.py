"""nvJitLink and nvlink on the same objects, and what is said when linking fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from compilers import needs_compilers

from spmark.impls.core.errors import CompileError
from spmark.impls.lo_spmm.link import jit_linker, link
from spmark.impls.runtime.toolchain import tool

pytestmark = needs_compilers


@pytest.fixture
def linker() -> None:
    if jit_linker() is None:
        pytest.skip("needs nvJitLink and its bindings (cuda-bindings)")


def test_an_unresolved_name_is_told_with_the_log(linker: None, tmp_path: Path) -> None:
    text = """.version 7.8
.target sm_90
.address_size 64
.extern .func tile_0(.reg .b64 %rd1);
.visible .entry lo_spmm(.param .u64 b)
{
  .reg .b64 %rd1;
  ld.param.u64 %rd1, [b];
  call tile_0, (%rd1);
  exit;
}
"""
    (tmp_path / "a.ptx").write_text(text)
    subprocess.run([tool("ptxas"), "-c", "-arch=sm_90", "a.ptx", "-o", "a.o"], cwd=tmp_path, check=True)
    with pytest.raises(CompileError, match=r"(?s)nvJitLink.*tile_0"):
        link(tmp_path, ["a.o"], "sm_90", lambda *_: pytest.fail("nvlink was started"))


def test_damaged_objects_and_strange_architectures_are_compile_errors(linker: None, tmp_path: Path) -> None:
    (tmp_path / "a.o").write_bytes(b"no object")
    with pytest.raises(CompileError, match="nvJitLink"):
        link(tmp_path, ["a.o"], "sm_90", lambda *_: "")
    with pytest.raises(CompileError, match="sm_12345"):
        link(tmp_path, ["a.o"], "sm_12345", lambda *_: "")


def test_without_the_library_nvlink_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    assert jit_linker() is None

    def run(folder: Path, *words: str) -> str:
        assert words == ("nvlink", "-arch=sm_80", "-v", "a.o", "b.o", "-o", "out.cubin")
        (folder / "out.cubin").write_bytes(b"linked")
        return "log"

    assert link(tmp_path, ["a.o", "b.o"], "sm_80", run) == (b"linked", "log")
