"""Assembled kernels without a GPU: registers, spills, and a cache that survives what goes wrong."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import numpy as np
import pytest
from compilers import needs_compilers
from problems import matrices, random_csr

from spmark.impls.core.errors import CompileError
from spmark.impls.lo_spmm import assemble as module
from spmark.impls.lo_spmm.assemble import assemble
from spmark.impls.lo_spmm.constraints import estimate_registers, register_cap
from spmark.impls.lo_spmm.kernel import Ending, TileSchedule, UnrolledKernel, make_tiles
from spmark.impls.lo_spmm.proxies import make_proxy
from spmark.impls.lo_spmm.reorder import deal_rows
from spmark.impls.runtime.compile import cache_folder

pytestmark = needs_compilers
SIZES = [
    *((rows, 1, 8) for rows in (2, 8, 12, 16, 33, 48, 96, 128)),
    *((rows, 2, 8) for rows in (4, 12, 16, 24, 48, 64)),
    *((rows, 4, 8) for rows in (8, 12, 16, 32)),
    (64, 1, 12),
    (20, 4, 4),
]


def layer(tile_rows: int, cpt: int, prefetch: int, density: float = 0.2) -> UnrolledKernel:
    density = min(density, 6 / tile_rows)
    rng = np.random.default_rng(tile_rows)
    matrix = random_csr(2 * tile_rows, 300, rng.binomial(300, density, 2 * tile_rows).tolist(), tile_rows)
    tiles = make_tiles(matrix, matrix.values, deal_rows(matrix, tile_rows))
    return UnrolledKernel(tiles, np.arange(len(tiles), dtype=np.int32), 512, TileSchedule(cpt, prefetch))


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path))


def entries() -> list[Path]:
    return [path for path in cache_folder().rglob("*") if path.is_file()]


@pytest.mark.one_in(7)
@pytest.mark.parametrize(("tile_rows", "cpt", "prefetch"), SIZES)
def test_registers_are_as_estimated_and_nothing_spills(tile_rows: int, cpt: int, prefetch: int) -> None:
    binary = assemble(layer(tile_rows, cpt, prefetch), "sm_90", register_cap(tile_rows, cpt, prefetch), workers=1)
    estimate = estimate_registers(tile_rows, cpt, prefetch)
    assert binary.spill_bytes == 0
    assert abs(binary.registers - estimate) <= max(8, 0.1 * binary.registers), (binary.registers, estimate)


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_every_architecture(arch: str) -> None:
    binary = assemble(layer(16, 1, 8), arch, register_cap(16, 1, 8), workers=1)
    assert binary.spill_bytes == 0
    assert binary.symbol == "lo_spmm"
    # Each of the products is an instruction of 16 bytes.
    assert len(binary.cubin) > 16 * sum(tile.nnz for tile in layer(16, 1, 8).tiles)


def test_a_cap_that_is_too_low_is_raised() -> None:
    binary = assemble(layer(32, 1, 8), "sm_90", 32, workers=1)
    assert binary.spill_bytes == 0
    assert binary.registers > 32


def test_a_proxy_is_assembled_like_any_kernel() -> None:
    kernel = layer(4, 1, 8, density=0.5)
    proxy = make_proxy(kernel.tiles * 3, 0.5, [1], width=512, schedule=kernel.schedule, least_instructions=0)
    assert len(proxy.tiles) < proxy.dispatch.size == 6
    assert assemble(proxy, "sm_90", register_cap(4, 1, 8), workers=1).spill_bytes == 0


@pytest.mark.parametrize(("cpt", "biased"), [(1, False), (4, False), (4, True)])
def test_constants_of_empty_rows_need_no_more_registers(cpt: int, biased: bool) -> None:
    """Forty of them in a tile of eight rows: without a bias, what is stored is the register that is always zero."""
    full, empty = random_csr(8, 60, [20] * 8), random_csr(48, 60, [20] * 8 + [0] * 40)
    needed = []
    for matrix in (full, empty):
        tiles = make_tiles(matrix, matrix.values, [np.arange(8, dtype=np.int32)])
        bias = np.linspace(-1, 1, matrix.num_rows, dtype=np.float32) if biased else None
        schedule, dispatch = TileSchedule(cpt, 8), np.arange(len(tiles), dtype=np.int32)
        kernel = UnrolledKernel(tiles, dispatch, 64, schedule, ending=Ending(bias))
        binary = assemble(kernel, "sm_90", register_cap(8, cpt, 8), workers=1)
        assert binary.spill_bytes == 0
        needed.append(binary.registers)
    assert needed[1] <= needed[0] + 2


def test_a_second_time_comes_from_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    first = assemble(layer(4, 1, 4), "sm_90", 40, workers=1)
    monkeypatch.setattr(module, "_run", lambda *_: pytest.fail("a tool was started"))
    assert assemble(layer(4, 1, 4), "sm_90", 40) == first


def test_a_poisoned_entry_is_made_again() -> None:
    first = assemble(layer(4, 1, 4), "sm_90", 40, workers=1)
    (entry,) = entries()
    held = bytearray(entry.read_bytes())
    held[-100] ^= 1
    entry.write_bytes(held)
    assert assemble(layer(4, 1, 4), "sm_90", 40, workers=1) == first


def fake_tool(folder: Path, script: str) -> Path:
    path = folder / "tool"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("kill -9 $$", "ended with -9"),
        ("sleep 20", "expected an end within"),
        ("echo no space left; exit 1", "no space left"),
    ],
)
def test_a_tool_that_fails_leaves_the_cache_as_it_was(
    script: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assemble(layer(4, 1, 4), "sm_90", 40, workers=1)
    before = {path: path.read_bytes() for path in entries()}
    broken = fake_tool(tmp_path, script)
    with monkeypatch.context() as patch:
        patch.setattr(module, "tool", lambda _: broken)
        patch.setattr(module, "TIMEOUT_S", 0.5)
        with pytest.raises(CompileError, match=said):
            assemble(layer(2, 1, 4), "sm_90", 40, workers=1)
    assert {path: path.read_bytes() for path in entries()} == before
    assert assemble(layer(2, 1, 4), "sm_90", 40, workers=1).registers


def test_a_full_disk_leaves_the_cache_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    assemble(layer(4, 1, 4), "sm_90", 40, workers=1)
    before = {path: path.read_bytes() for path in entries()}

    def full(self: Path, text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        with pytest.raises(CompileError, match="No space left on device"):
            assemble(layer(2, 1, 4), "sm_90", 40, workers=1)
    assert {path: path.read_bytes() for path in entries()} == before
    assert assemble(layer(2, 1, 4), "sm_90", 40, workers=1).registers


@pytest.mark.parametrize("name", ["one_by_one", "fully_dense"])
def test_corner_matrices(name: str) -> None:
    matrix = matrices()[name]
    tiles = make_tiles(matrix, matrix.values, deal_rows(matrix, 8))
    kernel = UnrolledKernel(tiles, np.arange(len(tiles), dtype=np.int32), 33, TileSchedule(1, 8))
    assert assemble(kernel, "sm_90", register_cap(8, 1, 8), workers=os.cpu_count()).spill_bytes == 0
