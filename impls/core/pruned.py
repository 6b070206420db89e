"""Pruned networks by name: their layers, and one matrix with the weights of all on its diagonal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise

from spmark.impls.core.errors import ProblemError
from spmark.impls.core.problem import Csr

_NAME = re.compile(r"(?:bert_([1-9]\d*)x(\d+)|resnet(14|50))@(0\.\d+)")
_BLOCKS = {"14": (1, 1, 1, 1), "50": (3, 4, 6, 3)}
"""Blocks of each stage: He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition", CVPR 2016, table 1."""


@dataclass(frozen=True)
class PrunedLayer:
    """A pruned layer: its weights are a matrix of filters x (channels, taps, taps); a linear layer has one tap."""

    filters: int
    channels: int
    taps: int = 1
    stride: int = 1

    @property
    def shape(self) -> tuple[int, int]:
        """(I, K) of the weights."""
        return self.filters, self.channels * self.taps**2


@dataclass(frozen=True)
class PrunedNetwork:
    """A pruned network by its name: ``bert_<layers>x<features>@<sparsity>``, ``resnet50@<sparsity>`` or ``resnet14``.

    Of BERT the linear layers of all encoders are pruned: query, key and value in one, output, and the two of the
    feed-forward part. Of ResNet (v1.5: a block's 3 x 3 layer strides) all convolutions but the first are.
    """

    name: str
    layers: tuple[PrunedLayer, ...]
    sparsity: str
    blocks: tuple[int, ...] = ()
    """ResNet: blocks of each stage."""

    @classmethod
    def of(cls, name: str) -> PrunedNetwork | None:
        """Read a name; None for another one."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        encoders, features, depth, sparsity = match.groups()
        if depth:
            return cls(name, tuple(_bottlenecks(_BLOCKS[depth])), sparsity, _BLOCKS[depth])
        f = int(features)
        if not f or f % 64:
            return None
        encoder = (PrunedLayer(3 * f, f), PrunedLayer(f, f), PrunedLayer(4 * f, f), PrunedLayer(f, 4 * f))
        return cls(name, encoder * int(encoders), sparsity)

    def parts(self, matrix: Csr) -> list[Csr]:
        """Cut the matrix with all weights on its diagonal into the layers' own. O(nnz).

        Raises
        ------
        ProblemError
            The matrix has another shape.
        """
        rows, cols = (
            list(accumulate(sizes, initial=0)) for sizes in zip(*(one.shape for one in self.layers), strict=True)
        )
        if matrix.shape != (rows[-1], cols[-1]):
            raise ProblemError(f"{self.name}: expected weights of shape {(rows[-1], cols[-1])}, found {matrix.shape}")
        found = []
        for (first, last), start, layer in zip(pairwise(rows), cols, self.layers, strict=False):
            places = slice(matrix.indptr[first], matrix.indptr[last])
            indptr = matrix.indptr[first : last + 1] - matrix.indptr[first]
            found.append(Csr.checked(layer.shape, indptr, matrix.indices[places] - start, matrix.values[places]))
        return found


def _bottlenecks(blocks: tuple[int, ...]) -> Iterator[PrunedLayer]:
    """Give the layers of ResNet in the order of the forward pass; a stage's first block ends with its shortcut's."""
    channels = 64
    for stage, count in enumerate(blocks):
        narrow = 64 << stage
        for block in range(count):
            stride = 2 if stage and not block else 1
            yield PrunedLayer(narrow, channels)
            yield PrunedLayer(narrow, narrow, 3, stride)
            yield PrunedLayer(4 * narrow, narrow)
            if not block:
                yield PrunedLayer(4 * narrow, channels, 1, stride)
            channels = 4 * narrow
