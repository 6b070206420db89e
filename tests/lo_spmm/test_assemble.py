"""Assembled kernels without a GPU: registers, spills, and a cache that survives what goes wrong."""

from __future__ import annotations

import stat
from pathlib import Path

import numpy as np
import pytest
from compilers import needs_compilers
from problems import random_csr

from spmark.impls.core.errors import CompileError
from spmark.impls.core.files import cache_folder
from spmark.impls.lo_spmm import assemble as module
from spmark.impls.lo_spmm.assemble import assemble
from spmark.impls.lo_spmm.constraints import estimate_registers, register_cap
from spmark.impls.lo_spmm.kernel import UnrolledKernel, make_tiles
from spmark.impls.lo_spmm.reorder import deal_rows

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
    return UnrolledKernel(tiles, np.arange(len(tiles), dtype=np.int32), 512, cpt, prefetch)


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
