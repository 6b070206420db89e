"""nvJitLink and nvlink on the same objects, and what is said when linking fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from compilers import needs_compilers
from problems import random_csr

from spmark.impls.core.errors import CompileError, DeviceError
from spmark.impls.lo_spmm import link as module
from spmark.impls.lo_spmm.assemble import assemble
from spmark.impls.lo_spmm.kernel import TileSchedule, UnrolledKernel, make_tiles
from spmark.impls.lo_spmm.link import jit_linker, link
from spmark.impls.lo_spmm.reorder import deal_rows
from spmark.impls.runtime.compile import Binary
from spmark.impls.runtime.toolchain import tool

pytestmark = needs_compilers


@pytest.fixture
def linker() -> None:
    if jit_linker() is None:
        pytest.skip("needs nvJitLink and its bindings (cuda-bindings)")


def assembled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Binary:
    monkeypatch.setenv("SPMARK_CACHE", str(folder))
    matrix = random_csr(40, 120, [60] * 40)
    tiles = make_tiles(matrix, matrix.values, deal_rows(matrix, 4))
    kernel = UnrolledKernel(tiles, np.arange(len(tiles), dtype=np.int32), 64, TileSchedule(1, 8))
    return assemble(kernel, "sm_90", 32, workers=2)


def code_of(binary: Binary, folder: Path) -> list[str]:
    try:
        disassembler = tool("nvdisasm")
    except DeviceError as error:
        pytest.skip(str(error))
    folder.mkdir(exist_ok=True)
    (folder / "k.cubin").write_bytes(binary.cubin)
    said = subprocess.run([disassembler, "-c", folder / "k.cubin"], capture_output=True, text=True, check=True).stdout
    # Sections and their instructions; what is left out are names of files in comments.
    return [line.strip() for line in said.splitlines() if line.startswith(".text.") or "/*" in line]


@pytest.mark.full
def test_both_linkers_give_the_same_code(linker: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_library = assembled(tmp_path / "a", monkeypatch)
    monkeypatch.setattr(module, "jit_linker", lambda: None)
    by_program = assembled(tmp_path / "b", monkeypatch)
    assert (by_library.symbol, by_library.registers, by_library.spill_bytes) == (
        by_program.symbol, by_program.registers, by_program.spill_bytes
    )  # fmt: skip
    one, other = code_of(by_library, tmp_path / "a"), code_of(by_program, tmp_path / "b")
    assert sum("FFMA" in line for line in one) == 40 * 60
    assert one == other


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


def test_an_older_library_is_not_asked(linker: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "nvcc_version", lambda: "Build cuda_99.1.r99.1/compiler.1_0")
    assert jit_linker() is None
    monkeypatch.setattr(module, "nvcc_version", lambda: "something else")
    assert jit_linker() is None
