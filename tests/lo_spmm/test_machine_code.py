"""What the assembler made of three layers: how many loads are on their way before one is needed, and every weight."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from compilers import needs_compilers
from problems import random_csr

from spmark.impls.core.errors import DeviceError
from spmark.impls.core.problem import Csr
from spmark.impls.lo_spmm.assemble import assemble
from spmark.impls.lo_spmm.constraints import register_cap
from spmark.impls.lo_spmm.kernel import UnrolledKernel, make_tiles
from spmark.impls.lo_spmm.reorder import deal_rows
from spmark.impls.lo_spmm.search import Pins
from spmark.impls.runtime.toolchain import tool

pytestmark = needs_compilers
SECTION = re.compile(r"^\.text\.(tile_\d+):$(.*?)(?=^\s*\.section|\Z)", re.MULTILINE | re.DOTALL)
PRODUCT = re.compile(r"FFMA\S* R\d+, .*? (-?[\d.]+(?:e[+-]?\d+)?), ")


@pytest.fixture
def disassembler() -> Path:
    try:
        return tool("nvdisasm")
    except DeviceError as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path))


def functions(matrix: Csr, rows: int, cpt: int, disassembler: Path, folder: Path) -> dict[str, list[str]]:
    """Assemble for sm_90 and give every tile's instructions."""
    tiles = make_tiles(matrix, matrix.values, deal_rows(matrix, rows))
    depth = Pins().depth(rows, cpt)
    kernel = UnrolledKernel(tiles, np.arange(len(tiles), dtype=np.int32), 784, cpt, depth)
    binary = assemble(kernel, "sm_90", register_cap(rows, cpt, depth), workers=2)
    assert binary.spill_bytes == 0
    (folder / "k.cubin").write_bytes(binary.cubin)
    said = subprocess.run([disassembler, "-c", folder / "k.cubin"], capture_output=True, text=True, check=True).stdout
    found = {name: body.splitlines() for name, body in SECTION.findall(said)}
    assert len(found) == len(tiles)
    return found


def test_machine_code_holds_every_weight_bit_for_bit(disassembler: Path, tmp_path: Path) -> None:
    """Denormals as well: no instruction flushes them to zero."""
    matrix = random_csr(16, 40, [9] * 16)
    values = matrix.values.copy()
    awkward = np.array([1e-45, -1.1754942e-38, 3.4028235e38, -0.1, 1 / 3], np.float32)
    values[: awkward.size] = awkward
    held = Csr(matrix.shape, matrix.indptr, matrix.indices, values)
    bodies = functions(held, 8, 1, disassembler, tmp_path)
    text = "\n".join(line for body in bodies.values() for line in body)
    assert ".FTZ" not in text
    found = np.array([np.float32(one) for one in PRODUCT.findall(text)], np.float32)
    np.testing.assert_array_equal(np.sort(found.view(np.uint32)), np.sort(values.view(np.uint32)))
