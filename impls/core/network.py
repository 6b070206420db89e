"""Networks as workloads: a step of training, or a forward pass, whose sparse products a library computes.

A problem of a network has one matrix, as every problem has: the graph, the mask of attention, or the weights of all
pruned layers on the diagonal of one matrix. So hashes, caches and records of matrices serve networks, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from spmark.impls.core.enums import NetworkOp as NetworkOp  # noqa: PLC0414 - is part of this module, too
from spmark.impls.core.errors import ProblemError
from spmark.impls.core.operators import compulsory_bytes, flops, operand_bytes
from spmark.impls.core.problem import Csr, DType

HIDDEN = 128
"""Hidden features of graph networks: SparseTIR, section 4.2.3."""
GRAPH_NETWORKS = (NetworkOp.GRAPHSAGE, NetworkOp.GCN)
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


@dataclass(frozen=True, eq=False)
class NetworkProblem:
    """A step of a network.

    =================  =====================  ==================================  ========
    op                 matrix                 width_in                            width
    =================  =====================  ==================================  ========
    graphsage, gcn     the graph              features of a node                  classes
    pruned_forward,    weights on a diagonal  BERT: tokens of a sequence,         batch
    pruned_training                           ResNet: pixels of an image's side
    attention          masks on a diagonal    heads                               features
    =================  =====================  ==================================  ========

    A graph's values follow from its pattern. Training is a step of it: forward, backward, new parameters; so are
    ``graphsage`` and ``gcn``. ``attention`` is forward and backward.
    """

    op: NetworkOp
    name: str
    """The matrix within its source, which says what network its weights are of."""
    matrix: Csr
    width_in: int
    width: int
    dtype: DType
    seed: int

    @property
    def pruned(self) -> PrunedNetwork:
        """The network that the weights are of.

        Raises
        ------
        ProblemError
            The matrix is of none.
        """
        found = PrunedNetwork.of(self.name)
        if found is None:
            raise ProblemError(
                f"{self.op}: expected the weights of a pruned network, such as pruned_networks/bert_12x768@0.91, found "
                f"the matrix {self.name!r}"
            )
        return found


@flops.register
def _network_flops(problem: NetworkProblem) -> int:
    """Give 2 nnz times the columns of a step's sparse products, those of gradients among them."""
    op, nnz = problem.op, problem.matrix.nnz
    if op is NetworkOp.GRAPHSAGE:
        return 2 * nnz * (problem.width_in + 4 * HIDDEN)
    if op is NetworkOp.GCN:
        return 4 * nnz * (HIDDEN + problem.width)
    if op is NetworkOp.ATTENTION:
        return 12 * nnz * problem.width
    layers = problem.pruned.layers
    if not problem.pruned.blocks:
        # Gradients of weights, and of what layers see, take as much again each, but for the first layer's input.
        backward = 2 * nnz - int(problem.matrix.indptr[layers[0].filters]) if op is NetworkOp.PRUNED_TRAINING else 0
        return 2 * (nnz + backward) * problem.width_in * problem.width
    found, side, ends = 0, problem.width_in // 4, accumulate(one.filters for one in layers)
    for layer, end in zip(layers, ends, strict=True):
        # The layer that strides comes before its block's last and the shortcut, which sees the larger image, too.
        side = side // layer.stride if layer.taps > 1 else side
        part = int(problem.matrix.indptr[end] - problem.matrix.indptr[end - layer.filters])
        found += 2 * part * problem.width * side**2
    return found


@operand_bytes.register
def _network_operand_bytes(problem: NetworkProblem) -> int:
    """Give the bytes of the values alone: what else is read depends on the network."""
    return problem.dtype.itemsize * problem.matrix.nnz


@compulsory_bytes.register
def _network_compulsory_bytes(problem: NetworkProblem) -> int:
    """Give the bytes of the matrix in CSR."""
    matrix: Any = problem.matrix
    return operand_bytes(problem) + int(matrix.indptr.nbytes + matrix.indices.nbytes)
