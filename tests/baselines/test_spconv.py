"""spconv and spconv-triton: the tables of a kernel map, and plans over functions that stand for the packages'."""

from __future__ import annotations

import sys
from itertools import pairwise
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from relational import SEED, kernel_map, operand_arrays, relational_matrices

from spmark.impls.core import errors, voxels
from spmark.impls.core.operators import reference
from spmark.impls.core.problem import DType
from spmark.impls.core.relational import RelationalCsr, RelationalProblem
from spmark.impls.core.tolerance import tolerance
from spmark.impls.runtime.device import find
from spmark.impls.spconv.plan import Spconv, SpconvTriton
from spmark.impls.spconv.tables import is_submanifold, neighbours, pairs, parts_of_offsets, sorted_masks

TILE = 4
VOXELS = np.unique(np.random.default_rng(0).integers(0, 7, (150, 3)), axis=0).astype(np.int32)
DOWN = voxels.kernel_map(np.unique(voxels.coarser(VOXELS), axis=0), VOXELS, 2, 2)
MAPS = {
    "submanifold": voxels.kernel_map(VOXELS, VOXELS),
    "down": DOWN,
    "up": DOWN.transposed(),
    "drawn": kernel_map(70),
    "rows_without_pairs": relational_matrices()["one_edge"],
    "all_of_32": RelationalCsr.of_edges((40, 9), 32, ([*range(32), 31], [7] * 32 + [39], [8] * 33)),
}


def edges_of(matrix: RelationalCsr) -> dict[tuple[int, int], int]:
    return {(r, row): col for r, row, col in zip(*(each.tolist() for each in matrix.edges), strict=True)}


@pytest.mark.parametrize("name", MAPS)
def test_tables_hold_every_pair_once(name: str) -> None:
    matrix = MAPS[name]
    edges = edges_of(matrix)
    table = neighbours(matrix)
    assert table.shape == (matrix.relations, matrix.num_rows)
    assert {at: int(table[at]) for at in zip(*(axis.tolist() for axis in np.nonzero(table >= 0)), strict=True)} == edges

    (inputs, outputs), counts = pairs(matrix)
    found = [(r, int(outputs[r, n]), int(inputs[r, n])) for r in range(matrix.relations) for n in range(counts[r])]
    assert sorted(found) == sorted((*at, col) for at, col in edges.items())
    assert (np.stack([inputs, outputs])[:, np.arange(inputs.shape[1]) >= counts[:, None]] == -1).all()


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("name", MAPS)
def test_masks_rise_and_say_the_offsets_of_their_outputs(name: str, parts: int) -> None:
    matrix = MAPS[name]
    edges, bits = edges_of(matrix), parts_of_offsets(matrix.relations, parts)
    assert sum(bits) == (1 << matrix.relations) - 1
    assert all(each & other == 0 for each, other in pairwise(bits))
    for part in bits:
        masks, order = sorted_masks(matrix, part)
        unsigned = masks[:, 0].view(np.uint32)
        assert (unsigned[1:] >= unsigned[:-1]).all()
        np.testing.assert_array_equal(np.sort(order), np.arange(matrix.num_rows))
        for mask, row in zip(unsigned.tolist(), order.tolist(), strict=True):
            assert mask == sum(1 << r for r in range(matrix.relations) if (r, row) in edges) & part


def test_the_middle_offset_is_in_the_first_half() -> None:
    assert parts_of_offsets(27, 2) == [(1 << 14) - 1, (1 << 27) - (1 << 14)]
    assert parts_of_offsets(8, 2) == [0x0F, 0xF0]


def test_a_submanifold_map_is_told_by_its_pairs() -> None:
    assert [name for name, matrix in MAPS.items() if is_submanifold(matrix)] == ["submanifold"]
    relation, rows, cols = MAPS["submanifold"].edges
    shape = len(VOXELS), len(VOXELS)
    assert not is_submanifold(RelationalCsr.of_edges(shape, 27, (relation, rows, (cols + 1) % len(VOXELS))))
    whole = np.ones(rows.size, bool)
    for less in (np.flatnonzero(relation == 13)[:1], np.flatnonzero(relation == 0)[:1]):
        whole[less] = False
        assert not is_submanifold(RelationalCsr.of_edges(shape, 27, (relation[whole], rows[whole], cols[whole])))
        whole[less] = True


class Calls(list[dict[str, Any]]):
    """Functions in the place of a package's, which compute with NumPy by the tables that they are given."""

    def implicit_gemm(
        self, x: Any, w: Any, table: Any, masks: Any, orders: Any, rows: int, bits: Any, **told: Any
    ) -> tuple[Any, None, int]:
        """Take for a tile of places in order all offsets that one of its masks has, part by part."""
        self.append(told)
        torch, out = pytest.importorskip("torch"), np.full((rows, w.shape[0]), np.nan)
        for part, (mask, order) in enumerate(zip(masks, orders, strict=True)):
            for at in range(0, rows, TILE):
                tile = order.numpy()[at : at + TILE]
                masked = mask.numpy().view(np.uint32)[at : at + TILE, 0]
                has = np.bitwise_or.reduce(masked) & np.asarray(bits[part]).item()
                total = np.zeros((tile.size, w.shape[0]))
                for r in range(w.shape[1]):
                    total += product(x, w, table.numpy()[r, tile] if has >> r & 1 else np.full(tile.size, -1), r)
                out[tile] = total if part == 0 else out[tile] + total
        return torch.from_numpy(out).to(x.dtype), None, 0

    def compiled(self, allocator: Any, tuner: str, *tables: Any, **told: Any) -> None:
        """Write the same into what the allocator gives: `spconv`'s allocator, as its public function calls it."""
        *tables, arch = tables
        assert (tuner, arch) == ("tuner", (9, 0))
        result, _, _ = self.implicit_gemm(*tables, **told)
        what = "OutFeatures", list(result.shape), 0, 0, told["stream_int"], False, 1.0
        out = allocator.empty(*what) if told["is_subm"] else allocator.zeros(*what)
        assert told["is_subm"] or not out.any()
        out.copy_(result)

    def indice_conv(self, x: Any, w: Any, table: Any, counts: Any, rows: int, **told: Any) -> Any:
        """Add up an offset's products; a submanifold's middle needs no pairs, and its later counts are mirrored."""
        self.append(told)
        torch, out = pytest.importorskip("torch"), np.zeros((rows, w.shape[0]))
        offsets, middle = w.shape[1], w.shape[1] // 2
        if told["subm"]:
            out += product(x, w, np.arange(rows), middle)
        for r in range(offsets):
            if told["subm"] and r == middle:
                continue
            count = counts[offsets - 1 - r if told["subm"] and r > middle else r]
            out[table.numpy()[1, r, :count]] += product(x, w, table.numpy()[0, r, :count], r)
        return torch.from_numpy(out).to(x.dtype)


def product(x: Any, w: Any, inputs: Any, r: int) -> Any:
    """Multiply rows of X by an offset's weights (width_out, offsets, width_in); none where the input is -1."""
    assert w.is_contiguous()
    return np.where(inputs[:, None] >= 0, x.numpy()[inputs].astype(float) @ w.numpy()[:, r].T.astype(float), 0)


class Allocator:
    """Stands for the package's, which makes arrays on a device."""

    def __init__(self, device: Any) -> None:
        self.device = device


class Cloned(np.ndarray[Any, Any]):
    """Has the method of spconv's arrays that copies."""

    def clone(self) -> Cloned:
        return self.copy()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    pytest.importorskip("torch")
    made = Calls()
    tv = SimpleNamespace(uint32="uint32", from_numpy=lambda array: array.view(Cloned))
    told = {
        "implicit_gemm": made.implicit_gemm,
        "indice_conv": made.indice_conv,
        "ConvGemmOps": SimpleNamespace(implicit_gemm=made.compiled),
        "CONV_CPP": "tuner",
        "TorchAllocator": Allocator,
        "get_arch": lambda: (9, 0),
        "get_current_stream": lambda: 5,
        "torch_tensor_to_tv": lambda tensor, dtype=None: tensor,
        "tv": tv,
    }
    for package, names in (("spconv", set(told) - {"implicit_gemm"}), ("spconv_triton", {"implicit_gemm"})):
        module = ModuleType(f"{package}.pytorch.ops")
        vars(module).update({name: told[name] for name in names})
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return made


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.FLOAT32])
@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize(
    "how",
    [Spconv(), Spconv("MaskSplitImplicitGemm"), Spconv("Native"), SpconvTriton()],
    ids=["masked", "split", "native", "triton"],
)
def test_the_result_is_that_of_the_packages_function(
    how: Spconv | SpconvTriton, name: str, dtype: DType, calls: Calls
) -> None:
    problem = RelationalProblem(MAPS[name], 5, 3, dtype)
    plan = how.build(problem, find("cpu"))
    assert plan.half_sums == (dtype.narrow and isinstance(how, Spconv))
    assert set(plan.phases_s) == {"convert", "upload", "search"}
    assert len(calls) == 1  # in which the packages tune
    for seed in (SEED, SEED + 1):
        operands, out = operand_arrays(problem, seed), np.full(problem.out_shape, np.nan, dtype.numpy)
        plan.run(operands, out)
        assert reference(problem, operands).max_error(out) <= tolerance(problem, plan.half_sums)
    submanifold = name == "submanifold"
    expected: dict[str, Any] = {"subm": submanifold}
    if isinstance(how, SpconvTriton):
        expected = {"is_train": False, "is_subm": submanifold, "fp32_accum": True}
    elif how != Spconv("Native"):
        sums = {"auto_fp32_accum": False, "fp32_accum": True, "use_tf32": False}
        expected = {"is_subm": submanifold, "stream_int": 5, **sums}
    assert calls == [expected] * 3


def test_padding_and_tables_are_accounted_for(calls: Calls) -> None:
    matrix = MAPS["submanifold"]
    problem, cpu = RelationalProblem(matrix, 5, 3), find("cpu")
    rows, longest = matrix.num_rows, int(np.bincount(matrix.edges[0]).max())
    masked, split, native = (
        Spconv(name).build(problem, cpu) for name in ("MaskImplicitGemm", "MaskSplitImplicitGemm", "Native")
    )
    assert masked.stored == split.stored == 27 * rows
    assert masked.device_bytes == 4 * (27 + 1 + 1) * rows
    assert split.device_bytes == 4 * (27 + 2 + 2) * rows
    assert (native.stored, native.device_bytes) == (27 * longest, 2 * 4 * 27 * longest)
    assert native.config == {"algorithm": "Native"}


@pytest.mark.parametrize("how", [Spconv(), SpconvTriton()], ids=["spconv", "spconv_triton"])
def test_what_is_no_map_of_theirs_is_refused(how: Spconv | SpconvTriton, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, matrices = find("host-simt"), relational_matrices()

    def told(matrix: RelationalCsr, dtype: DType = DType.FLOAT16) -> str | None:
        return how.unsupported(RelationalProblem(matrix, 5, 3, dtype), gpu)

    assert told(MAPS["down"], DType.BFLOAT16) == "expected float16 or float32, found bfloat16"
    assert str(told(matrices["hub"])).startswith("expected values that are all 1, since")
    assert told(matrices["no_edges"]) == "expected a map with pairs, found none"
    twice = RelationalCsr.of_edges((3, 5), 2, ([1, 1], [2, 2], [3, 4]))
    assert told(twice) == "expected an edge of each relation and row, found several of relation 1 and row 2"
    many = RelationalCsr.of_edges((3, 5), 33, ([1], [2], [3]))
    assert told(many) == "expected at most 32 relations, found 33"
    monkeypatch.setattr(errors, "find_spec", lambda name: None if name == how.name else name)
    assert told(MAPS["down"]) == f"{how.name} is not installed: pip install -e '.[spconv]' in a checkout"
    with pytest.raises(ValueError, match=r"expected algorithm out of MaskImplicitGemm, .* found 'Auto'"):
        Spconv("Auto")
