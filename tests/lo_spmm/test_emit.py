"""Both languages against the description: PTX line by line, CUDA C++ by running it on the host."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from problems import matrices, random_csr, run_checked

from spmark.impls.core.problem import Csr, Op, Problem
from spmark.impls.lo_spmm.emit_cuda import literal
from spmark.impls.lo_spmm.emit_ptx import entry_ptx, function_ptx
from spmark.impls.lo_spmm.kernel import NAME, UnrolledKernel, make_tiles
from spmark.impls.lo_spmm.plan import LoSpmm
from spmark.impls.lo_spmm.reorder import deal_rows
from spmark.impls.runtime.device import find
from spmark.impls.runtime.host.ring import HostKernel

LOAD = re.compile(r"ld\.global\.nc(?:\.v\d)?\.f32 \{?([^}\]]*?)\}?, \[%rd1\+(\d+)\];")
FMA = re.compile(r"fma\.rn\.f32 (%s\d+), (%v\d+), 0f([0-9A-F]{8}), (%s\d+);")
STORE = re.compile(r"st\.global(?:\.v\d)?\.f32 \[%rd2\+(\d+)\], \{?([^}]*?)\}?;")
ZERO = re.compile(r"mov\.f32 (%s\d+|%z), 0f00000000;")
AWKWARD = np.array([-0.0, 0.0, 1e-45, -1.1754942e-38, 3.4028235e38, -0.1, 1 / 3, 1.0], np.float32)


def kernel_of(matrix: Csr, tile_rows: int, width: int, cpt: int = 1, prefetch: int = 8) -> UnrolledKernel:
    tiles = make_tiles(matrix, matrix.values, deal_rows(matrix, tile_rows))
    return UnrolledKernel(tiles, np.arange(len(tiles), dtype=np.int32), width, cpt, prefetch)


def effects(text: str, width: int) -> Mapping[tuple[int, int], list[tuple[int, int]]]:
    """Follow a function's registers: the products, as (row of B, bits of the weight), of every (row of C, lane)."""
    sums: dict[str, list[tuple[int, int]]] = {}
    elements: dict[str, tuple[int, int]] = {}
    results: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for line in text.splitlines():
        if found := ZERO.search(line):
            sums[found[1]] = []
        elif found := LOAD.search(line):
            for lane, name in enumerate(found[1].split(", ")):
                row, rest = divmod(int(found[2]), 4 * width)
                assert rest == 0
                elements[name] = (row, lane)
        elif found := FMA.search(line):
            assert found[1] == found[4]
            sums[found[1]].append((*elements[found[2]], int(found[3], 16)))
        elif found := STORE.search(line):
            for lane, name in enumerate(found[2].split(", ")):
                row, rest = divmod(int(found[1]), 4 * width)
                assert rest == 0
                assert all(at == lane for _, at, _ in sums[name])
                assert (row, lane) not in results
                results[row, lane] = [(column, bits) for column, _, bits in sums[name]]
        else:
            assert re.fullmatch(r"\.visible \.func .*|[{}]|\s*\.reg \.f32 .*;|\s*exit;|", line), line
    return results


@pytest.mark.parametrize(("cpt", "prefetch"), [(1, 8), (2, 3), (4, 1)])
@pytest.mark.parametrize("name", matrices())
def test_ptx_does_every_product_once(name: str, cpt: int, prefetch: int) -> None:
    matrix = matrices()[name]
    kernel = kernel_of(matrix, 6, 40, cpt, prefetch)
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for number in range(len(kernel.tiles)):
        found |= effects(function_ptx(kernel, number), 40)
    bits = matrix.values.view(np.uint32).tolist()
    for row in range(matrix.num_rows):
        span = range(matrix.indptr[row], matrix.indptr[row + 1])
        for lane in range(cpt):
            assert found.pop((row, lane)) == [(int(matrix.indices[at]), bits[at]) for at in span]
    assert not found


@pytest.mark.parametrize(
    ("arch", "followed", "begins"),
    [
        ("sm_80", True, False),
        ("sm_89", True, False),
        ("sm_90", True, True),
        ("sm_90a", True, True),
        ("sm_100", True, True),
        ("sm_100", False, False),
    ],
)
def test_the_next_grid_is_let_begin_where_there_is_one_and_the_architecture_can(
    arch: str, followed: bool, begins: bool
) -> None:
    kernel = replace(kernel_of(matrices()["under_32_rows"], 2, 24, 2), followed=followed)
    assert ("griddepcontrol.launch_dependents;" in entry_ptx(kernel, arch)) == begins


@pytest.mark.parametrize("value", AWKWARD)
def test_literals_of_ptx_keep_every_bit(value: np.float32) -> None:
    matrix = random_csr(1, 3, [1])
    text = function_ptx(kernel_of(Csr((1, 3), matrix.indptr, matrix.indices, value.reshape(1)), 1, 8), 0)
    ((*_, bits, _),) = FMA.findall(text)
    assert int(bits, 16) == value.view(np.uint32)


@pytest.mark.parametrize("value", AWKWARD)
def test_literals_of_c_keep_every_bit(value: np.float32) -> None:
    text = literal(value)
    assert text.endswith("f")
    assert np.float32(float.fromhex(text[:-1])).view(np.uint32) == value.view(np.uint32)


LENGTHS = {
    "first": [0, 0, 9, 1, 12, 4],
    "middle": [3, 0, 9, 0, 0, 4],
    "last": [3, 9, 1, 12, 0, 0],
    "all_but_one": [0, 0, 0, 0, 7, 0],
    "most": [0, 5, *[0] * 270, 2, 0],
}


@pytest.mark.parametrize("split", [1, 2])
@pytest.mark.parametrize("name", LENGTHS)
def test_c_writes_empty_rows_by_the_one_launch(name: str, split: int, monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[str] = []
    enqueue = HostKernel.launch

    def launch(self: HostKernel, *args: Any, **more: Any) -> None:
        launched.append(self.instance.template.name)
        enqueue(self, *args, **more)

    monkeypatch.setattr(HostKernel, "launch", launch)
    lengths = LENGTHS[name]
    problem = Problem(Op.SPMM, random_csr(len(lengths), 20, lengths), 38)
    how = LoSpmm(tile_rows=2, threads=32, cpt=2, tiles_per_block=2, split=split)
    plan = how.build(problem, find("host-simt"))
    for _ in range(2):
        launched.clear()
        run_checked(plan, problem)
    assert launched == ([NAME] if split == 1 else [NAME, "sum_parts"])


@pytest.mark.parametrize(("cpt", "width", "prefetch", "together"), [(1, 70, 8, 1), (2, 70, 2, 2), (4, 132, 5, 4)])
def test_c_on_the_host(cpt: int, width: int, prefetch: int, together: int) -> None:
    """J is no multiple of N1, nor three tiles of what a block has: some threads have nothing to do."""
    matrix = random_csr(11, 30, [3, 0, 9, 1, 1, 0, 12, 4, 30, 2, 5])
    values = matrix.values.copy()
    values[: AWKWARD.size - 4] = AWKWARD[[0, 1, 5, 6]]
    problem = Problem(Op.SPMM, Csr(matrix.shape, matrix.indptr, matrix.indices, values), width)
    how = LoSpmm(tile_rows=4, threads=32, cpt=cpt, tiles_per_block=together, prefetch=prefetch)
    plan = how.build(problem, find("host-simt"))
    run_checked(plan, problem)
    assert plan.config["tile_width"] == 32 * cpt
