"""Attention masks that formulas give exactly: LogSparse, Strided, the one-sided block band and the butterfly.

More patterns are drawn: `interleaved`, our reconstruction of the pattern that STile's figure 12 sketches, and the
matrices that LO-SpMM's figures describe: `similar` (figure 6) and `few_columns` (figures 4 and 9).

The formulas give the published counts (STile, table 4; SparseTIR, section 4.3). In details they differ from the masks
that they are named after: see each function.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from spmark.datasets.cache import Cache
from spmark.datasets.source import Args, Facts, RawMatrix, Source, argument, csr_from_edges, only
from spmark.impls.core.errors import DatasetError
from spmark.records.schema import MatrixKind

Edges = tuple[NDArray[np.int64], NDArray[np.int64]]
_PUBLISHED = {
    "logsparse_4096": Facts(4096, 4096, 90_115),
    "strided_4096": Facts(4096, 4096, 766_144),
    "band_4096": Facts(4096, 4096, 3_976 * 256),
    "butterfly_4096": Facts(4096, 4096, 2_304 * 256),
}
_LARGEST = 1 << 20


class Patterns(Source):
    """Masks by formula: ``logsparse_N``, ``strided_N``, ``band_N``, ``butterfly_N``, ``interleaved_N``, and others.

    The others are ``similar_N`` and ``few_columns_N``, which has N columns and ``rows`` (128) rows; all but the last
    are square. A further ``_label`` after N tells apart masks of other arguments. Arguments, with defaults:

    - strided: ``stride`` (the root of N, rounded down);
    - band: ``block`` (16), ``blocks`` (16);
    - butterfly: ``block`` (16);
    - interleaved: ``block`` (16), ``length`` (32), ``density`` (0.7), ``seed`` (0);
    - similar: ``block`` (32), ``similarity`` (0.0), ``ratio`` (1.0), ``density`` (0.02), ``seed`` (0);
    - few_columns: ``rows`` (128), ``columns`` (N), ``nnz`` (one a column), ``seed`` (0);
    - all: ``heads`` (1), copies of the mask on the diagonal, each with values of its own, as a batch of attention heads
      multiplies by them.
    """

    name = "patterns"
    title = "attention masks by formula"
    licence = "none needed (formulas)"
    citation = (
        "Li et al., Enhancing the locality and breaking the memory bottleneck of Transformer on time series "
        "forecasting, NeurIPS 2019 (LogSparse); Child et al., Generating long sequences with sparse Transformers, "
        "2019 (Strided); Beltagy et al., Longformer, 2020 (band); Chen et al., Pixelated Butterfly, ICLR 2022 "
        "(butterfly)"
    )

    def names(self, cache: Cache) -> Sequence[str]:
        """List the masks of the papers; every other N works as well."""
        return tuple(_PUBLISHED)

    def facts(self, name: str) -> Facts | None:
        """Give the published counts."""
        return _PUBLISHED.get(name)

    def load(self, name: str, args: Args, cache: Cache) -> RawMatrix:
        """Make a mask."""
        match = re.fullmatch(rf"({'|'.join(_FORMULAS)})_(\d+)(_[\w.-]+)?", name)
        size = int(match[2]) if match else 0
        if match is None or not 2 <= size <= _LARGEST:
            raise DatasetError(
                f"patterns/{name}: expected a formula out of {', '.join(_FORMULAS)} and a size in [2, {_LARGEST}], "
                f"such as logsparse_4096, found {name!r}"
            )
        where = f"patterns/{name}"
        heads = argument(where, args, "heads", 1, (1, _LARGEST // size))
        rows, cols = _FORMULAS[match[1]](where, size, {key: args[key] for key in args if key != "heads"})
        num_rows = argument(where, args, "rows", _ROWS[match[1]], (1, _LARGEST)) if match[1] in _ROWS else size
        mask = csr_from_edges((num_rows, size), rows, cols, None, MatrixKind.SYNTHETIC, merge=True, where=where)
        return _on_diagonal(mask, heads)


def logsparse(where: str, size: int, args: Args) -> Edges:
    """Row i has i, i - 2^j for j = 0 .. floor(log2 i), and i + 2^j for j = 0 .. floor(log2(N - 1 - i)) - 1.

    The right side stops one power early, and N = 4096 thus has the 90,115 non-zeros of STile's table 4.
    """
    only(where, args)
    i = np.arange(size, dtype=np.int64)
    parts = [(i, i)]
    for step in (1 << j for j in range(size.bit_length())):
        left, right = i[i >= step], i[2 * step <= size - 1 - i]
        parts += [(left, left - step), (right, right + step)]
    return _joined(parts)


def strided(where: str, size: int, args: Args) -> Edges:
    """Row i has the columns within s - 1 of i, and the columns at multiples of s to either side, except the outermost.

    The latter are i + s j for j = 1 .. floor((N - 1 - i) / s) - 1 and i - s j for j = 1 .. floor(i / s) - 1.

    Without the outermost stride, N = 4096 with s = 64 has the 766,144 non-zeros of STile's table 4.
    """
    only(where, args, "stride")
    stride = argument(where, args, "stride", int(size**0.5), (1, size))
    i = np.arange(size, dtype=np.int64)
    parts = []
    for step in range(1 - stride, stride):
        inside = i[(i + step >= 0) & (i + step < size)]
        parts.append((inside, inside + step))
    for step in range(stride, size, stride):
        # j = step / s is taken while j <= floor(room / s) - 1, that is while (j + 1) s <= room.
        right, left = i[step + stride <= size - 1 - i], i[step + stride <= i]
        parts += [(right, right + step), (left, left - step)]
    return _joined(parts)


def band(where: str, size: int, args: Args) -> Edges:
    """Block row r has the full blocks r .. r + blocks - 1 within the matrix: an upper, one-sided band.

    This is SparseTIR's "band of size 256" for Longformer as its artefact makes it: 3,976 blocks of 16 x 16 for N =
    4096.
    """
    only(where, args, "block", "blocks")
    block = argument(where, args, "block", 16, (1, size))
    count = argument(where, args, "blocks", 16, (1, size))
    grid = _grid(where, size, block)
    r = np.arange(grid, dtype=np.int64)
    return _blocks(
        _joined([(r[r + step < grid], r[r + step < grid] + step) for step in range(min(count, grid))]), block
    )


def butterfly(where: str, size: int, args: Args) -> Edges:
    """Block row r has the full blocks r and r xor s for every power of two s below the number of block rows.

    This is the union over all strides s of 2 x 2 butterflies (Pixelated Butterfly): 2,304 blocks of 16 x 16 for N =
    4096.
    """
    only(where, args, "block")
    block = argument(where, args, "block", 16, (1, size))
    grid = _grid(where, size, block)
    if grid & (grid - 1):
        raise DatasetError(
            f"{where}: expected a power of two of block rows, found {grid} ({size} rows in blocks of {block})"
        )
    r = np.arange(grid, dtype=np.int64)
    return _blocks(_joined([(r, r), *((r, r ^ (1 << bit)) for bit in range(grid.bit_length() - 1))]), block)


def interleaved(where: str, size: int, args: Args) -> Edges:
    """Every row has its share of a dense block and a segment of its own: our reconstruction of STile's figure 12.

    The figure is a sketch and its generator is not public. Here a random half of the columns belongs to blocks and the
    other half to segments. Rows, permuted, stand in groups of ``block``. Each group fills ``block`` columns of the
    first half at ``density``; the next group takes the next columns, and after the last column the first follows. Each
    row has ``length`` columns of the second half, drawn for this row alone.

    No order of rows separates blocks from segments, since every row has both: a format must take the blocks first, and
    then regroup the rest of the same rows.
    """
    only(where, args, "block", "length", "density", "seed")
    half = size // 2
    block = argument(where, args, "block", min(16, half), (1, half))
    length = argument(where, args, "length", min(32, size - half), (0, size - half))
    density = argument(where, args, "density", 0.7, (0.0, 1.0))
    rng = np.random.default_rng(argument(where, args, "seed", 0, (0, 2**31)))
    rows, cols = rng.permutation(size), rng.permutation(size)
    member, slot = np.divmod(np.arange(size * block), block)
    kept = rng.random(member.size) < density
    inner = member // block * block + slot
    dense = rows[member[kept]], cols[inner[kept] % half]
    drawn = np.stack([rng.choice(size - half, length, replace=False) for _ in range(size)])
    return _joined([dense, (np.repeat(rows, length), cols[half + drawn.ravel()])])


def similar(where: str, size: int, args: Args) -> Edges:
    """Blocks of rows; the second half of them repeats a share of the first half's places (LO-SpMM, figure 6).

    Block i + B / 2 of B has the share ``similarity`` of the places of block i, chosen at random. Each other place moves
    to another column of its row. Of two blocks 2 i and 2 i + 1 the second has ``ratio`` times the non-zeros of the
    first. Rows of one block differ by at most one non-zero.

    The paper (section 4.3) gives N = 1024 in 32 blocks, 98 % sparsity, similarities from 0 to 0.9 and ratios from 1 to
    3. The paper does not say how places are drawn; here they are drawn uniformly.
    """
    only(where, args, "block", "similarity", "ratio", "density", "seed")
    block = argument(where, args, "block", min(32, size), (1, size))
    grid = _grid(where, size, block)
    if grid % 4:
        raise DatasetError(
            f"{where}: expected a number of blocks that 4 divides (pairs in both halves), found {grid} of {block} rows"
        )
    similarity = argument(where, args, "similarity", 0.0, (0.0, 1.0))
    ratio = argument(where, args, "ratio", 1.0, (1.0, 1e3))
    density = argument(where, args, "density", 0.02, (0.0, 0.25))
    bits = np.random.PCG64(argument(where, args, "seed", 0, (0, 2**31)))
    first = round(2 * density * block * size / (1 + ratio))
    counts = first, round(2 * density * block * size) - first
    cols: list[NDArray[np.int64]] = []
    repeated: list[NDArray[np.int64]] = []
    for number in range(grid // 2):
        count = counts[number % 2]
        whole, over = divmod(count, block)
        changed = np.ones(count, bool)
        changed[_shuffled(bits, count)[: round(similarity * count)]] = False
        at = 0
        for row in range(block):
            length = whole + (row < over)
            drawn = _shuffled(bits, size)[: 2 * length]  # length is at most half of the columns
            cols.append(drawn[:length])
            repeated.append(np.where(changed[at : at + length], drawn[length:], drawn[:length]))
            at += length
    lengths = np.array([row.size for row in cols + repeated], np.int64)
    return np.repeat(np.arange(size, dtype=np.int64), lengths), np.concatenate(cols + repeated)


def few_columns(where: str, size: int, args: Args) -> Edges:
    """``nnz`` non-zeros in ``columns`` of N columns: LO-SpMM's figures 4 and 9 vary one of the two.

    The columns are drawn. Columns differ by at most one non-zero, and so do the ``rows`` rows. The paper's figure 4 has
    128 rows of 2,048 columns with 2,048 to 4,096 non-zeros. Figure 9 fills half of the places of some rows.
    """
    only(where, args, "rows", "columns", "nnz", "seed")
    num_rows = argument(where, args, "rows", _ROWS["few_columns"], (1, _LARGEST))
    columns = argument(where, args, "columns", size, (1, size))
    nnz = argument(where, args, "nnz", columns, (columns, columns * num_rows))
    bits = np.random.PCG64(argument(where, args, "seed", 0, (0, 2**31)))
    kept, rows = _shuffled(bits, size)[:columns], _shuffled(bits, num_rows)
    whole, over = divmod(nnz, columns)
    # One row after the other, again from the first after the last: no column has a row twice.
    return rows[np.arange(nnz) % num_rows], np.repeat(kept, whole + (np.arange(columns) < over))


def _shuffled(bits: np.random.PCG64, count: int) -> NDArray[np.int64]:
    """Give 0 .. count - 1 in the order of random keys, so that NumPy's version does not matter. O(count log count)."""
    return np.argsort(bits.random_raw(count), kind="stable").astype(np.int64)


_ROWS: Mapping[str, int] = {"few_columns": 128}
"""Default of ``rows``, by the formulas whose matrices are not square."""
_FORMULAS: Mapping[str, Callable[[str, int, Args], Edges]] = {
    one.__name__: one for one in (logsparse, strided, band, butterfly, interleaved, similar, few_columns)
}


def _grid(where: str, size: int, block: int) -> int:
    if size % block:
        raise DatasetError(f"{where}: expected a size that the block size {block} divides, found {size}")
    return size // block


def _blocks(blocks: Edges, block: int) -> Edges:
    """Fill every block."""
    inner = np.arange(block, dtype=np.int64)
    rows = blocks[0][:, None, None] * block + inner[:, None] + np.zeros_like(inner)
    cols = blocks[1][:, None, None] * block + np.zeros_like(inner)[:, None] + inner
    return rows.ravel(), cols.ravel()


def _on_diagonal(mask: RawMatrix, copies: int) -> RawMatrix:
    """Repeat a pattern along the diagonal. O(copies nnz)."""
    (num_rows, num_cols), nnz = mask.shape, mask.facts.nnz
    copy = np.arange(copies, dtype=np.int64)[:, None]
    indptr = np.append(copy * nnz + mask.indptr[:-1], copies * nnz)
    indices = (copy * num_cols + mask.indices).ravel()
    return RawMatrix((copies * num_rows, copies * num_cols), indptr, indices, None, mask.kind)


def _joined(parts: list[Edges]) -> Edges:
    return np.concatenate([rows for rows, _ in parts]), np.concatenate([cols for _, cols in parts])
