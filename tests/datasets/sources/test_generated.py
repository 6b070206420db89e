"""Generated matrices against slow, obvious versions and published counts."""

from __future__ import annotations

import numpy as np
import pytest

from spmark.datasets.load import load_matrix
from spmark.datasets.source import Facts
from spmark.datasets.sources.pruned_layers import SHAPES, DnnLayers
from spmark.datasets.sources.twin import TWINS, Law, draw, row_lengths
from spmark.datasets.sweep.model import MatrixSpec
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.problem import Csr
from spmark.records.schema import MatrixKind


def load(cache, source, name, **args):
    return load_matrix(MatrixSpec(source=source, name=name, args=args), cache, 0).csr


def rows_of(csr):
    return [set(csr.indices[a:b].tolist()) for a, b in zip(csr.indptr, csr.indptr[1:], strict=False)]


def log2(n):
    return n.bit_length() - 1


def logsparse_row(i, n):
    left = {i - 2**j for j in range(log2(i) + 1)} if i else set()
    room = n - 1 - i
    return {i} | left | ({i + 2**j for j in range(log2(room))} if room else set())


def strided_row(i, n, s):
    row = set(range(max(0, i - s + 1), min(i + s, n)))
    row |= {i + s * j for j in range(1, (n - 1 - i) // s)}
    return row | {i - s * j for j in range(1, i // s)}


@pytest.mark.parametrize("n", [2, 3, 16, 100, 257])
def test_logsparse(cache, n):
    assert rows_of(load(cache, "patterns", f"logsparse_{n}")) == [logsparse_row(i, n) for i in range(n)]


@pytest.mark.parametrize(("n", "s"), [(2, 1), (64, 8), (100, 7), (100, 100), (65, 8)])
def test_strided(cache, n, s):
    assert rows_of(load(cache, "patterns", f"strided_{n}", stride=s)) == [strided_row(i, n, s) for i in range(n)]


def test_band(cache):
    csr = load(cache, "patterns", "band_64", block=8, blocks=3)
    assert rows_of(csr) == [{k for k in range(64) if 0 <= k // 8 - i // 8 < 3} for i in range(64)]


def test_butterfly(cache):
    csr = load(cache, "patterns", "butterfly_64_label", block=4)
    near = [{i // 4} | {(i // 4) ^ (1 << bit) for bit in range(4)} for i in range(64)]
    assert rows_of(csr) == [{k for k in range(64) if k // 4 in blocks} for blocks in near]


def test_interleaved_rows_have_a_share_of_a_block_and_a_segment(cache):
    csr = load(cache, "patterns", "interleaved_64", block=8, length=5, density=1.0)
    rows = rows_of(csr)
    assert all(len(row) == 8 + 5 for row in rows)
    # The eight rows of a group have the same eight columns; each row's five others are its own.
    together = sorted(sum(len(rows[i] & rows[j]) >= 8 for j in range(64)) for i in range(64))
    assert together == [16] * 64, "32 columns in groups of eight, 64 rows: two groups have the same columns"


@pytest.mark.parametrize(("similarity", "ratio"), [(0.0, 1.0), (0.4, 3.0), (0.9, 1.0), (1.0, 2.0)])
def test_similar_blocks_share_so_many_places(cache, similarity, ratio):
    """The matrix of LO-SpMM's figure 6, smaller: eight blocks of 16 rows."""
    csr = load(cache, "patterns", "similar_128", block=16, similarity=similarity, ratio=ratio, density=0.1)
    rows = rows_of(csr)
    counts = [sum(len(row) for row in rows[at : at + 16]) for at in range(0, 128, 16)]
    assert counts[:4] == counts[4:]
    assert counts[1] / counts[0] == pytest.approx(ratio, rel=0.02)
    assert csr.nnz == pytest.approx(0.1 * 128 * 128, rel=0.01)
    for block in range(4):
        lengths = {len(row) for row in rows[16 * block : 16 * block + 16]}
        assert max(lengths) - min(lengths) <= 1
        shared = sum(len(rows[16 * block + row] & rows[16 * block + 64 + row]) for row in range(16))
        assert shared == round(similarity * counts[block])


@pytest.mark.parametrize("args", [{"formula": "interleaved"}, {"formula": "similar", "block": 8, "density": 0.1}])
def test_a_pattern_is_drawn_from_its_seed(cache, args):
    formula = args.pop("formula")
    one, same, other = (
        load(cache, "patterns", f"{formula}_64_{label}", seed=seed, **args)
        for label, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    np.testing.assert_array_equal(one.indices, same.indices)
    assert rows_of(one) != rows_of(other)


@pytest.mark.parametrize(("rows", "columns", "nnz"), [(128, 32, 4096), (128, 300, 1000), (8, 64, 256), (5, 7, 7)])
def test_few_columns_hold_all_non_zeros_evenly(cache, rows, columns, nnz):
    csr = load(cache, "patterns", "few_columns_300_label", rows=rows, columns=columns, nnz=nnz)
    assert (csr.shape, csr.nnz) == ((rows, 300), nnz)
    by_column = np.bincount(csr.indices, minlength=300)
    assert np.count_nonzero(by_column) == columns
    assert np.ptp(by_column[by_column > 0]) <= 1
    assert np.ptp(csr.row_lengths) <= 1


@pytest.mark.parametrize(
    ("name", "nnz"),
    [("logsparse_4096", 90_115), ("strided_4096", 766_144), ("band_4096", 1_017_856), ("butterfly_4096", 589_824)],
)
def test_published_counts(cache, name, nnz):
    csr = load(cache, "patterns", name)
    assert (csr.shape, csr.nnz) == ((4096, 4096), nnz)


@pytest.mark.parametrize(
    ("source", "name", "args", "message"),
    [
        ("patterns", "logsparse", {}, "expected a formula out of logsparse, strided, band, butterfly, interleaved,"),
        ("patterns", "logspar_64", {}, "expected a formula"),
        ("patterns", "logsparse_1", {}, "expected a formula .* and a size"),
        ("patterns", "logsparse_64", {"stride": 3}, "expected arguments out of none, found stride"),
        ("patterns", "strided_64", {"stride": 0}, r"expected stride to be an integer in \[1, 64\], found 0"),
        ("patterns", "strided_64", {"stride": 1.5}, "found 1.5"),
        ("patterns", "similar_64", {"block": 32}, "expected a number of blocks that 4 divides .* found 2 of 32 rows"),
        ("patterns", "similar_64", {"block": 24}, "divides"),
        ("patterns", "few_columns_64", {"nnz": 63}, r"expected nnz to be an integer in \[64, 8192\], found 63"),
        ("patterns", "strided_64", {"stride": True}, "found True"),
        ("patterns", "band_100", {}, "a size that the block size 16 divides, found 100"),
        ("patterns", "butterfly_48", {}, "expected a power of two of block rows, found 3"),
        ("patterns", "band_64_x", {"heads": 0}, r"expected heads to be an integer in \[1, 16384\], found 0"),
        ("patterns", "band_4096", {"heads": 2}, "8,192 x 8,192"),
        ("pruned_bert", "768x768_block32@1.0", {}, "such as 3072x768_block32@0.93, found '768x768_block32@1.0'"),
        ("pruned_networks", "bert_2x100@0.9", {}, "features in steps of 64, .* found 'bert_2x100@0.9'"),
        ("pruned_bert", "700x768_block32@0.9", {}, "expected a shape out of 768x768, 3072x768, 768x3072"),
        ("pruned_bert", "768x768_block33@0.9", {}, "a block that divides 768"),
        ("pruned_bert", "768x768_block32@0.9", {"empty_rows": 1.5}, r"empty_rows to be a number in \[0.0, 1.0\]"),
        ("pruned_bert", "768x768_block32@0.5", {"empty_rows": 0.9}, "room for 288 blocks, found 3 of 24 block rows"),
        ("pruned_bert", "768x768_block32@0.9", {"heads": 2}, "expected arguments out of seed, empty_rows, found heads"),
        ("rmat", "r", {"a": 0.9}, r"a \+ b \+ c \+ d to be 1"),
        ("rmat", "r", {"scale": 0}, "scale"),
        ("rmat", "r", {"scale": 27}, r"at most 2\^28 edges"),
        ("rmat", "r", {"x": 1}, "found x"),
    ],
)
def test_mistakes(cache, source, name, args, message):
    with pytest.raises(DatasetError, match=message):
        load(cache, source, name, **args)


@pytest.mark.parametrize("name", ["logsparse_32", "band_32", "butterfly_32"])
def test_heads_stand_on_the_diagonal(cache, name):
    one = load(cache, "patterns", name)
    three = load(cache, "patterns", f"{name}_3heads", heads=3)
    assert three.shape == (96, 96)
    assert rows_of(three) == [{32 * (i // 32) + k for k in rows_of(one)[i % 32]} for i in range(96)]
    values = three.values.reshape(3, one.nnz)
    assert not np.array_equal(values[0], values[1])


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("768x768_block32@0.93", 40),  # 40.32
        ("3072x768_block32@0.93", 161),  # 161.28
        ("768x3072_block64@0.5", 288),
        ("3072x768_block1@0.94", 141_557),  # 141,557.76
    ],
)
def test_pruned_layers_keep_whole_blocks(cache, name, kept):
    csr = load(cache, "pruned_bert", name)
    block = int(name.split("block")[1].split("@")[0])
    assert f"{csr.num_rows}x{csr.num_cols}" == name.split("_")[0]
    assert csr.nnz == kept * block**2
    held = np.bincount(csr.rows_of_entries() // block * (csr.num_cols // block) + csr.indices // block)
    assert set(held[held > 0].tolist()) == {block**2}
    assert csr.hash == load(cache, "pruned_bert", name).hash
    assert csr.hash != load(cache, "pruned_bert", name, seed=1).hash


def test_pruned_layers_are_uniform_and_can_have_empty_block_rows(cache):
    csr = load(cache, "pruned_bert", "3072x768_block1@0.9")
    assert 0.9 < csr.row_lengths.std() / np.sqrt(76.8 * 0.9) < 1.1
    half = load(cache, "pruned_bert", "3072x768_block32@0.93_half", empty_rows=0.5)
    whole = load(cache, "pruned_bert", "3072x768_block32@0.93")
    assert half.nnz == whole.nnz
    assert np.count_nonzero(half.row_lengths == 0) >= 1536 > np.count_nonzero(whole.row_lengths == 0)


def test_layers_are_41_shapes_at_5_sparsities(cache):
    assert sum(len(shapes) for by_width in SHAPES.values() for shapes in by_width.values()) == 41
    names = DnnLayers().names(cache)
    assert len(names) == len(set(names)) == 36 * 5


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("bert_3072x768@0.9", Facts(3072, 768, 235_929)),  # 235,929.6
        ("bert_768x768@0.7", Facts(768, 768, 176_947)),  # 176,947.2
        ("resnet50_2048x1024@0.95", Facts(2048, 1024, 104_857)),  # 104,857.6
        ("shufflenetv2_116x116@0.98", Facts(116, 116, 269)),  # 269.12
    ],
)
def test_layer_counts(cache, name, facts):
    csr = load(cache, "dnn_layers", name)
    assert Facts(*csr.shape, csr.nnz) == facts
    assert csr.hash == load(cache, "dnn_layers", name).hash
    assert csr.hash != load(cache, "dnn_layers", name, seed=1).hash


def test_layers_are_pruned_uniformly(cache):
    csr = load(cache, "dnn_layers", "bert_3072x768@0.8")
    kept, chance = csr.num_cols * 0.2, 0.8
    assert abs(csr.row_lengths.mean() - kept) < 0.1
    assert 0.9 < csr.row_lengths.std() / np.sqrt(kept * chance) < 1.1
    per_column = np.bincount(csr.indices, minlength=csr.num_cols)
    assert 0.9 < per_column.std() / np.sqrt(csr.num_rows * 0.2 * chance) < 1.1


@pytest.mark.parametrize(
    ("source", "name", "hash"),
    [
        ("dnn_layers", "shufflenetv2_116x116@0.98", "e42500768b275aaa"),
        ("pruned_bert", "768x768_block32@0.93", "73cae7d55d584d84"),
        ("pruned_networks", "bert_1x64@0.9", "cee6848471ff048f"),
        ("rmat", "r", "0b7c4efe17e01986"),
    ],
)
def test_seeded_matrices_change_with_no_release_and_no_numpy(cache, source, name, hash):
    args = {"scale": 10, "edge_factor": 8} if source == "rmat" else {}
    assert load(cache, source, name, **args).hash.startswith(hash)


def test_rmat(cache):
    csr = load(cache, "rmat", "r", scale=10, edge_factor=8)
    assert csr.shape == (1024, 1024)
    assert 4000 < csr.nnz <= 8192
    assert csr.row_lengths.max() > 8 * csr.row_lengths.mean()
    assert csr.hash == load(cache, "rmat", "other label", scale=10, edge_factor=8).hash
    assert csr.hash != load(cache, "rmat", "r", scale=10, edge_factor=8, seed=1).hash


def test_rmat_quadrants(cache):
    csr = load(cache, "rmat", "r", scale=12, edge_factor=4, a=0.1, b=0.6, c=0.1, d=0.2)
    upper = csr.rows_of_entries() < 2048
    right = csr.indices >= 2048
    assert abs(np.mean(upper & right) - 0.6) < 0.05
    assert abs(np.mean(~upper & right) - 0.2) < 0.03
    assert load(cache, "rmat", "r", scale=3, edge_factor=5, a=0, b=0, c=1, d=0).nnz == 1


SMALL = Law(2000, 60_000, 700, 5, False, 0.7)


@pytest.mark.parametrize("contiguous", [True, False])
def test_twin(contiguous):
    law = Law(SMALL.num_rows, SMALL.nnz, SMALL.longest_row, SMALL.communities, contiguous, SMALL.inside)
    raw = draw(law, 3)
    csr = Csr.checked(raw.shape, raw.indptr, raw.indices, np.ones(law.nnz, np.float32))
    assert (csr.num_rows, csr.nnz, csr.row_lengths.max()) == (law.num_rows, law.nnz, law.longest_row)
    assert raw.kind is MatrixKind.TWIN
    assert np.median(csr.row_lengths) < 0.8 * csr.row_lengths.mean()
    per_column = np.bincount(csr.indices, minlength=law.num_rows)
    assert per_column.max() > 5 * per_column.mean()
    again = draw(law, 3)
    assert np.array_equal(again.indices, raw.indices)
    assert not np.array_equal(draw(law, 4).indices, raw.indices)


def test_twin_communities():
    raw = draw(Law(2000, 60_000, 700, 5, True, 0.9), 0)
    shares = 1 / np.sqrt(np.arange(1, 6))
    bounds = np.rint(np.cumsum(shares / shares.sum()) * 2000)
    rows = np.repeat(np.arange(2000), np.diff(raw.indptr))
    same = np.searchsorted(bounds, rows, side="right") == np.searchsorted(bounds, raw.indices, side="right")
    assert 0.8 < same.mean() < 0.97


def test_twin_is_the_same_everywhere():
    raw = draw(SMALL, 0)
    csr = Csr(raw.shape, raw.indptr, raw.indices, np.ones(raw.indices.size, np.float32))
    assert csr.hash.startswith("4916f7051227471a")


@pytest.mark.parametrize("name", sorted(TWINS))
def test_row_lengths(name):
    law = TWINS[name]
    lengths = row_lengths(law)
    assert (lengths.size, lengths.sum(), lengths.max()) == (law.num_rows, law.nnz, law.longest_row)
    assert lengths.min() >= 1
    steps = np.diff(lengths)
    assert steps.min() >= -1, "a rest is spread over rows one by one"
    assert np.mean(steps < 0) < 0.04
