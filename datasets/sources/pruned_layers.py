"""Stand-ins for layers of pruned networks: seeded masks of published shapes and sparsities.

Randomly pruned layers of BERT-base, ResNet50, MobileNetV2 and ShuffleNetV2 make 41 problems at five sparsities.

LO-SpMM (Lin et al., ACM TACO 2024) gives the networks, the ranges of its 41 shapes and says that pruning is random. The
paper lists neither shapes nor sparsities. The shapes here are not the authors' list; they lie within all published
ranges but the smallest K (batch 16; convolutions as im2col).

SparseTIR (Ye et al., ASPLOS 2023, section 4.3.2) multiplies by the 72 weight matrices of two models of BERT-base:
query, key, value and output of 12 layers are 768 x 768, the two of the feed-forward part 3072 x 768 and 768 x 3072.
One model is pruned in blocks of 32 x 32 to 93 % on average (Lagunas et al., EMNLP 2021), one by elements to 94 % (Sanh
et al., NeurIPS 2020). The real masks are in the models alone, which are not part of this project.

The weights of whole networks are there for `spmark.impls.core.network`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from spmark.datasets.cache import Cache
from spmark.datasets.source import Args, Facts, RawMatrix, Source, argument, csr_from_edges, known, only
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.pruned import PrunedLayer, PrunedNetwork
from spmark.records.schema import MatrixKind

SPARSITIES = ("0.7", "0.8", "0.9", "0.95", "0.98")
SHAPES: dict[str, dict[int, tuple[tuple[int, int], ...]]] = {
    "bert": {
        512: ((768, 768), (3072, 768), (768, 3072)),
        4096: ((768, 768), (3072, 768), (768, 3072)),
    },
    "resnet50": {
        50176: ((64, 64), (64, 576), (256, 64), (64, 256), (128, 256)),
        12544: ((128, 1152), (512, 128), (512, 256), (128, 512), (256, 512)),
        3136: ((256, 2304), (1024, 256), (1024, 512), (256, 1024), (512, 1024)),
        784: ((2048, 512), (2048, 1024), (512, 2048)),
    },
    "mobilenetv2": {
        12544: ((192, 32),),
        3136: ((64, 192), (384, 64), (64, 384), (96, 384), (576, 96), (96, 576)),
        784: ((160, 576), (960, 160), (160, 960), (320, 960), (1280, 320)),
    },
    "shufflenetv2": {
        12544: ((116, 116),),
        3136: ((116, 116), (232, 232)),
        784: ((232, 232), (1024, 464)),
    },
}
"""(I, K) of every layer by network and width J.

I counts output channels, K is input channels x kernel area, and J is batch x output area (or tokens).
"""
_LAYERS = {
    f"{network}_{rows}x{cols}": (rows, cols)
    for network, by_width in SHAPES.items()
    for shapes in by_width.values()
    for rows, cols in shapes
}
"""(I, K) of every layer by name; layers of two widths stand once, 36 in all."""
BERT_SHAPES = ((768, 768), (3072, 768), (768, 3072))
"""(I, K): outputs and inputs of BERT's layers."""
BERT_SPARSITIES = {32: ("0.7", "0.8", "0.9", "0.93", "0.95", "0.98"), 1: ("0.9", "0.94", "0.95", "0.98")}
"""Listed sparsities of each block size: the published average and values around it."""
_BERT_NAME = re.compile(r"(\d+)x(\d+)_block(\d+)@(0\.\d+)(_[\w.-]+)?")
_ROWS_STREAM, _BLOCKS_STREAM = 1, 2


def draw_places(seed: Sequence[int], size: int, count: int) -> NDArray[np.int64]:
    """Draw ``count`` of the places 0 .. size - 1 without replacement.

    The places are the positions of the smallest of ``size`` random keys, so that NumPy's version does not matter.

    Returns
    -------
    (count,) int64, increasing. O(size + count log count).
    """
    keys = np.random.PCG64(list(seed)).random_raw(size)
    return np.sort(np.argpartition(keys, count)[:count]) if count < size else np.arange(size)


class DnnLayers(Source):
    """Randomly pruned layers, named ``<network>_<I>x<K>@<sparsity>``; ``seed`` (default 0) draws another mask.

    Exactly floor((1 - sparsity) I K) weights are kept (DLMC's rounding), a uniform sample without replacement.
    """

    name = "dnn_layers"
    title = "randomly pruned layers"
    citation = "shapes after Lin et al., LO-SpMM, ACM TACO 2024 (a reconstruction)"

    def names(self, cache: Cache) -> Sequence[str]:
        """List the 36 matrices of the 41 problems at each sparsity."""
        return tuple(f"{layer}@{sparsity}" for layer in _LAYERS for sparsity in SPARSITIES)

    def facts(self, name: str) -> Facts | None:
        """Give the counts."""
        layer, _, sparsity = name.partition("@")
        if layer not in _LAYERS or sparsity not in SPARSITIES:
            return None
        rows, cols = _LAYERS[layer]
        return Facts(rows, cols, int((1 - Fraction(sparsity)) * rows * cols))

    def load(self, name: str, args: Args, cache: Cache) -> RawMatrix:
        """Draw a mask."""
        where, facts = f"dnn_layers/{name}", self.facts(known("dnn_layers", name, self.names(cache)))
        only(where, args, "seed")
        assert facts is not None
        rows, cols, nnz = facts.num_rows, facts.num_cols, facts.nnz
        seed = argument(where, args, "seed", 0, (0, 2**31 - 1))
        row, col = np.divmod(draw_places([seed, rows, cols, nnz], rows * cols, nnz), cols)
        return csr_from_edges((rows, cols), row, col, None, MatrixKind.SYNTHETIC, merge=False, where=where)


class PrunedNetworks(Source):
    """The weights of all pruned layers of a network, on the diagonal of one matrix; another ``seed`` draws others.

    Names are those of `spmark.impls.core.network.PrunedNetwork`. Each layer keeps a uniform sample of exactly
    floor((1 - sparsity) I K) weights, as random pruning does; those of checkpoints are not part of this project.
    """

    name = "pruned_networks"
    title = "stand-ins for pruned networks"
    citation = "networks and sparsities after Lin et al., LO-SpMM, ACM TACO 2024, section 7.4; masks are drawn"

    def names(self, cache: Cache) -> Sequence[str]:
        """List the paper's networks at its sparsities; other sizes work as well."""
        return ("bert_12x768@0.91", "resnet50@0.9")

    def facts(self, name: str) -> Facts | None:
        """Give the counts; None for a name that loading will refuse."""
        network = PrunedNetwork.of(name)
        if network is None:
            return None
        rows, cols = (sum(sizes) for sizes in zip(*(one.shape for one in network.layers), strict=True))
        return Facts(rows, cols, sum(map(_kept_of, network.layers, repeat(network.sparsity))))

    def load(self, name: str, args: Args, cache: Cache) -> RawMatrix:
        """Draw the masks, one layer after the other."""
        where, facts, network = f"pruned_networks/{name}", self.facts(name), PrunedNetwork.of(name)
        if network is None or facts is None:
            raise DatasetError(
                f"{where}: expected bert_<layers>x<features>@<sparsity> with features in steps of 64, "
                f"resnet50@<sparsity> or resnet14@<sparsity>, found {name!r}"
            )
        only(where, args, "seed")
        seed = argument(where, args, "seed", 0, (0, 2**31 - 1))
        rows, cols, at = [], [], np.zeros(2, np.int64)
        for number, layer in enumerate(network.layers):
            size, kept = layer.shape[0] * layer.shape[1], _kept_of(layer, network.sparsity)
            row, col = np.divmod(draw_places([seed, number, size, kept], size, kept), layer.shape[1])
            rows.append(row + at[0])
            cols.append(col + at[1])
            at += layer.shape
        shape = facts.num_rows, facts.num_cols
        ends = np.concatenate(rows), np.concatenate(cols)
        return csr_from_edges(shape, *ends, None, MatrixKind.SYNTHETIC, merge=False, where=where)


def _kept_of(layer: PrunedLayer, sparsity: str) -> int:
    return int((1 - Fraction(sparsity)) * layer.shape[0] * layer.shape[1])


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
            for block, sparsities in BERT_SPARSITIES.items()
            for rows, cols in BERT_SHAPES
            for sparsity in sparsities
        )

    def facts(self, name: str) -> Facts | None:
        """Give the counts; None for a name that loading will refuse."""
        layer = _bert_layer(name)
        return Facts(layer[0], layer[1], layer[3] * layer[2] ** 2) if layer else None

    def load(self, name: str, args: Args, cache: Cache) -> RawMatrix:
        """Draw the block rows that are not empty, then blocks in them."""
        where, layer = f"pruned_bert/{name}", _bert_layer(name)
        if layer is None:
            raise DatasetError(
                f"{where}: expected a shape out of {', '.join(f'{rows}x{cols}' for rows, cols in BERT_SHAPES)}, a "
                f"block that divides 768 and a sparsity below 1, such as 3072x768_block32@0.93, found {name!r}"
            )
        num_rows, num_cols, block, kept = layer
        only(where, args, "seed", "empty_rows")
        seed = argument(where, args, "seed", 0, (0, 2**31 - 1))
        empty = argument(where, args, "empty_rows", 0.0, (0.0, 1.0))
        block_rows, block_cols = num_rows // block, num_cols // block
        used_rows = block_rows - int(Fraction(str(empty)) * block_rows)
        if kept > used_rows * block_cols:
            raise DatasetError(
                f"{where}: expected empty_rows to leave room for {kept} blocks, found {used_rows} of {block_rows} "
                f"block rows left with {block_cols} blocks each"
            )
        rows = draw_places([seed, *layer, _ROWS_STREAM], block_rows, used_rows)
        row, col = np.divmod(draw_places([seed, *layer, _BLOCKS_STREAM], used_rows * block_cols, kept), block_cols)
        inner = np.arange(block)
        entries = np.broadcast_to(rows[row][:, None, None] * block + inner[:, None], (kept, block, block)).ravel()
        columns = np.broadcast_to(col[:, None, None] * block + inner, (kept, block, block)).ravel()
        return csr_from_edges(
            (num_rows, num_cols), entries, columns, None, MatrixKind.SYNTHETIC, merge=False, where=where
        )


def _bert_layer(name: str) -> tuple[int, int, int, int] | None:
    """Give rows, columns, side of a block and number of blocks that are kept; None for another name."""
    match = _BERT_NAME.fullmatch(name)
    num_rows, num_cols, block = (int(match[part]) for part in (1, 2, 3)) if match else (0, 0, 0)
    if match is None or (num_rows, num_cols) not in BERT_SHAPES or not 1 <= block <= 768 or 768 % block:
        return None
    return num_rows, num_cols, block, int((1 - Fraction(match[4])) * (num_rows * num_cols // block**2))
