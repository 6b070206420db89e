"""Stand-ins for the layers of pruned BERT models: seeded masks of the published shapes and sparsities.

SparseTIR (Ye et al., ASPLOS 2023, section 4.3.2) multiplies by the 72 weight matrices of two models of BERT-base:
query, key, value and output of 12 layers are 768 x 768, the two of the feed-forward part 3072 x 768 and 768 x 3072.
One model is pruned in blocks of 32 x 32 to 93 % on average (Lagunas et al., EMNLP 2021), one by elements to 94 % (Sanh
et al., NeurIPS 2020). The real masks are in the models alone, which are not part of this project.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from spmark.datasets.cache import Cache
from spmark.datasets.source import Args, Facts, RawMatrix, Source, argument, csr_from_edges, only
from spmark.datasets.sources.dnn_layers import draw_places
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.record import MatrixKind

SHAPES = ((768, 768), (3072, 768), (768, 3072))
"""(I, K): outputs and inputs of the layers."""
SPARSITIES = {32: ("0.7", "0.8", "0.9", "0.93", "0.95", "0.98"), 1: ("0.9", "0.94", "0.95", "0.98")}
"""Listed sparsities of each block size: the published average and values around it."""
_NAME = re.compile(r"(\d+)x(\d+)_block(\d+)@(0\.\d+)(_[\w.-]+)?")
_ROWS_STREAM, _BLOCKS_STREAM = 1, 2


@dataclass(frozen=True)
class _Layer:
    """The layer that a name describes."""

    num_rows: int
    num_cols: int
    block: int
    kept: int
    """Blocks with non-zeros."""

    @property
    def grid(self) -> tuple[int, int]:
        """Block rows and block columns."""
        return self.num_rows // self.block, self.num_cols // self.block


class PrunedBert(Source):
    """Layers pruned at random, named ``<I>x<K>_block<B>@<sparsity>``: blocks of B x B are kept whole or dropped.

    Exactly floor((1 - sparsity) blocks) blocks are kept, a uniform sample; another ``seed`` (default 0) draws another.
    ``empty_rows`` (0) is the share of block rows without a block, whatever the sparsity: block-pruned models have many.
    A further ``_label`` tells apart layers of other arguments.
    """

    name = "pruned_bert"
    title = "stand-ins for layers of pruned BERT"
    citation = (
        "shapes and average sparsities after Lagunas et al., Block pruning for faster transformers, EMNLP 2021, and "
        "Sanh et al., Movement pruning, NeurIPS 2020 (a reconstruction)"
    )

    def names(self, cache: Cache) -> Sequence[str]:
        """List three shapes at the sparsities of both prunings; others work as well."""
        return tuple(
            f"{rows}x{cols}_block{block}@{sparsity}"
            for block, sparsities in SPARSITIES.items()
            for rows, cols in SHAPES
            for sparsity in sparsities
        )

    def facts(self, name: str) -> Facts | None:
        """Give the counts; None for a name that loading will refuse."""
        try:
            layer = _layer(name)
        except DatasetError:
            return None
        return Facts(layer.num_rows, layer.num_cols, layer.kept * layer.block**2)

    def load(self, name: str, args: Args, cache: Cache) -> RawMatrix:
        """Draw the block rows that are not empty, then blocks in them."""
        where, layer = f"pruned_bert/{name}", _layer(name)
        only(where, args, "seed", "empty_rows")
        seed = argument(where, args, "seed", 0, (0, 2**31 - 1))
        empty = argument(where, args, "empty_rows", 0.0, (0.0, 1.0))
        block_rows, block_cols = layer.grid
        used_rows = block_rows - int(Fraction(str(empty)) * block_rows)
        if layer.kept > used_rows * block_cols:
            raise DatasetError(
                f"{where}: expected empty_rows to leave room for {layer.kept} blocks, found {used_rows} of "
                f"{block_rows} block rows left with {block_cols} blocks each"
            )
        words = [seed, layer.num_rows, layer.num_cols, layer.block, layer.kept]
        rows = draw_places([*words, _ROWS_STREAM], block_rows, used_rows)
        row, col = np.divmod(draw_places([*words, _BLOCKS_STREAM], used_rows * block_cols, layer.kept), block_cols)
        inner = np.arange(layer.block)
        entries = np.broadcast_to(
            rows[row][:, None, None] * layer.block + inner[:, None], (layer.kept, *[layer.block] * 2)
        )
        columns = np.broadcast_to(col[:, None, None] * layer.block + inner, entries.shape)
        shape = layer.num_rows, layer.num_cols
        return csr_from_edges(
            shape, entries.ravel(), columns.ravel(), None, MatrixKind.SYNTHETIC, merge=False, where=where
        )


def _layer(name: str) -> _Layer:
    match = _NAME.fullmatch(name)
    num_rows, num_cols, block = (int(match[part]) for part in (1, 2, 3)) if match else (0, 0, 0)
    if match is None or (num_rows, num_cols) not in SHAPES or not 1 <= block <= 768 or 768 % block:
        shapes = ", ".join(f"{rows}x{cols}" for rows, cols in SHAPES)
        raise DatasetError(
            f"pruned_bert/{name}: expected a shape out of {shapes}, a block that divides 768 and a sparsity below 1, "
            f"such as 3072x768_block32@0.93, found {name!r}"
        )
    blocks = num_rows * num_cols // block**2
    return _Layer(num_rows, num_cols, block, int((1 - Fraction(match[4])) * blocks))
