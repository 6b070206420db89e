"""Layers of BERT-base, ResNet50, MobileNetV2 and ShuffleNetV2, pruned at random: 41 problems at five sparsities.

LO-SpMM (Lin et al., ACM TACO 2024) gives the networks, the ranges of its 41 shapes and says that pruning is random. The
paper lists neither shapes nor sparsities. The shapes here are not the authors' list; they lie within all published
ranges but the smallest K (batch 16; convolutions as im2col).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from spmark.datasets.cache import Cache
from spmark.datasets.source import Args, Facts, RawMatrix, Source, argument, known, only
from spmark.impls.core.record import MatrixKind

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


def _shapes() -> dict[str, tuple[int, int]]:
    """Give every layer's shape by name; layers of two widths stand once, 36 in all."""
    return {
        f"{network}_{rows}x{cols}": (rows, cols)
        for network, by_width in SHAPES.items()
        for shapes in by_width.values()
        for rows, cols in shapes
    }


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
        return self._names()

    def facts(self, name: str) -> Facts | None:
        """Give the counts."""
        if name not in self._names():
            return None
        layer, _, sparsity = name.partition("@")
        rows, cols = _shapes()[layer]
        return Facts(rows, cols, int((1 - Fraction(sparsity)) * rows * cols))

    def load(self, name: str, args: Args, cache: Cache) -> RawMatrix:
        """Draw a mask."""
        known("dnn_layers", name, self._names())
        only(f"dnn_layers/{name}", args, "seed")
        seed = argument(f"dnn_layers/{name}", args, "seed", 0, (0, 2**31 - 1))
        facts = self.facts(name)
        assert facts is not None
        kept = draw_places(
            [seed, facts.num_rows, facts.num_cols, facts.nnz], facts.num_rows * facts.num_cols, facts.nnz
        )
        indptr = np.searchsorted(kept, np.arange(facts.num_rows + 1) * facts.num_cols).astype(np.int32)
        indices = (kept % facts.num_cols).astype(np.int32)
        return RawMatrix((facts.num_rows, facts.num_cols), indptr, indices, None, MatrixKind.SYNTHETIC)

    @staticmethod
    def _names() -> tuple[str, ...]:
        return tuple(f"{layer}@{sparsity}" for layer in _shapes() for sparsity in SPARSITIES)
