"""What fits a multiprocessor once the assembler has said how many registers it needs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from compilers import needs_compilers
from problems import random_csr

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import BuildError
from spmark.impls.lo_spmm import machine
from spmark.impls.lo_spmm.constraints import resident_blocks
from spmark.impls.lo_spmm.kernel import UnrolledKernel, make_tiles
from spmark.impls.lo_spmm.machine import Code, check_fits, fitting
from spmark.impls.lo_spmm.reorder import deal_rows
from spmark.impls.lo_spmm.space import TileSize
from spmark.impls.runtime.compile import Binary, compile_kernel
from spmark.impls.runtime.device import shipped_calibration

TARGET = SimpleNamespace(spec=DeviceSpec.load(shipped_calibration("nvidia-h200")))


def code(registers: int) -> Code:
    return Code(None, 0, registers)


@pytest.mark.parametrize(
    ("registers", "expected"), [(40, 4), (64, 4), (65, 3), (80, 3), (81, 2), (128, 2), (129, 1), (255, 1)]
)
def test_fewer_tiles_where_registers_do_not_do(registers: int, expected: int) -> None:
    """Four tiles of 256 threads have 64 registers each, which are handed out in eights."""
    assert fitting(code(registers), TileSize(16, 256, 1, 4), TARGET) == TileSize(16, 256, 1, expected)


@pytest.mark.parametrize(("registers", "most"), [(88, 640), (96, 640), (104, 512), (144, 384), (200, 256), (255, 256)])
def test_each_quarter_of_a_multiprocessor_holds_whole_warps(registers: int, most: int) -> None:
    """An H200 refused blocks of one warp more as launches out of resources, with registers to spare."""
    check_fits(code(registers), TileSize(8, most), TARGET)
    with pytest.raises(BuildError, match=f"at most {most} threads of {registers} registers"):
        check_fits(code(registers), TileSize(8, most + 32), TARGET)


def test_a_tile_that_does_not_fit_alone() -> None:
    with pytest.raises(BuildError, match="at most 896 threads of 65 registers in a thread block, found 1024"):
        check_fits(code(65), fitting(code(65), TileSize(16, 1024, 1, 1), TARGET), TARGET)
    check_fits(code(64), TileSize(16, 1024), TARGET)


@needs_compilers
@pytest.mark.parametrize(("threads", "cap"), [(32, 24), (64, 24), (256, 40), (1024, 64)])
def test_launch_bounds_are_some_that_the_compiler_keeps(
    threads: int, cap: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ptxas warns of others, and ignores them."""
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path))
    blocks = resident_blocks(threads, cap, TARGET.spec)
    source = tmp_path / "k.cu"
    sums = "\n".join(f"  float s{i} = p[{i} * n];" for i in range(200))
    ends = "\n".join(f"  p[{i}] = s{(i * 7) % 200};" for i in range(200))
    source.write_text(
        f"template <int threads> __global__ void __launch_bounds__(threads, {blocks}) k(float* p, int n) {{\n"
        f"{sums}\n{ends}\n}}\n"
    )
    binary = compile_kernel(source, f"k<{threads}>", "sm_90")
    assert binary.registers * threads * blocks <= TARGET.spec.registers_per_sm


def test_a_kernel_in_c_has_such_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path))
    matrix = random_csr(4, 20, [5] * 4)
    tiles = make_tiles(matrix, matrix.values, deal_rows(matrix, 2))
    kernel = UnrolledKernel(tiles, np.arange(2, dtype=np.int32), 64, 1, 8)
    seen = [machine.instance_of(kernel, TARGET.spec, threads) for threads in (32, 1024)]
    # 24 registers of 32 threads would go 85 times into 65,536: no multiprocessor holds as many blocks.
    assert [one.expression for one in seen] == ["lo_spmm<32, 32>", "lo_spmm<1024, 2>"]
    assert len({one.template.source for one in seen}) == 1


def test_one_piece_of_assembled_code_serves_every_size_of_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = pytest.importorskip("spmark.impls.runtime.cuda", reason="CuPy is not installed", exc_type=ImportError)
    monkeypatch.setattr(cuda, "load_function", lambda binary: f"the function of {binary.symbol}")
    held = machine.load_binary(Binary(b"\x7fELF", "lo_spmm", 40, 0, 0), "a key")
    for threads in (32, 96, 640):
        kernel = held.kernel_at(threads)
        assert (kernel.instance.threads, kernel.function) == (threads, "the function of lo_spmm")
        assert held.registers == 40
    assert (held.code_bytes, held.cache_key) == (4, "a key")
