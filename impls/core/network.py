"""Networks as workloads: a step of training, or a forward pass, whose sparse products a library computes.

A problem of a network has one matrix, as every problem has: the graph, the mask of attention, or the weights of all
pruned layers on the diagonal of one matrix. So hashes, caches and records of matrices serve networks, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np

from spmark.impls.core.enums import NetworkOp as NetworkOp  # noqa: PLC0414 - is part of this module, too
from spmark.impls.core.errors import ProblemError
from spmark.impls.core.problem import Csr, DType
from spmark.impls.core.pruned import PrunedNetwork
from spmark.impls.core.relational import RelationalCsr, RelationalProblem

HIDDEN = 128
"""Hidden features of graph networks: SparseTIR, section 4.2.3."""
RELATIONAL_HIDDEN = 32
"""Hidden features of RGCN: SparseTIR, section 4.4.1."""
GRAPH_NETWORKS = (NetworkOp.GRAPHSAGE, NetworkOp.GCN)


@dataclass(frozen=True, eq=False)
class NetworkProblem:
    """A step of a network.

    =================  =====================  ==================================  ========
    op                 matrix                 width_in                            width
    =================  =====================  ==================================  ========
    graphsage, gcn     the graph              features of a node                  classes
    rgcn               the relations, side    features of a node                  classes
                       by side
    pruned_forward,    weights on a diagonal  BERT: tokens of a sequence,         batch
    pruned_training                           ResNet: pixels of an image's side
    attention          masks on a diagonal    heads                               features
    =================  =====================  ==================================  ========

    A graph's values follow from its pattern. Training is a step of it: forward, backward, new parameters; so are
    ``graphsage`` and ``gcn``. ``attention`` is forward and backward, ``rgcn`` forward.
    """

    op: NetworkOp
    name: str
    """The matrix within its source, which says what network its weights are of."""
    matrix: Csr
    width_in: int
    width: int
    dtype: DType
    seed: int
    relations: int = 0
    """Of ``rgcn``."""

    @cached_property
    def graph(self) -> RelationalCsr:
        """The graph of ``rgcn``, whose values are all 1: a layer takes the sum over a relation's edges."""
        ones = replace(self.matrix, values=np.ones(self.matrix.nnz, np.float32))
        return RelationalCsr.checked(ones, self.relations, self.name)

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

    def flops(self) -> int:
        """Give 2 nnz times the columns of a step's sparse products, those of gradients among them."""
        op, nnz = self.op, self.matrix.nnz
        if op is NetworkOp.GRAPHSAGE:
            return 2 * nnz * (self.width_in + 4 * HIDDEN)
        if op is NetworkOp.GCN:
            return 4 * nnz * (HIDDEN + self.width)
        if op is NetworkOp.RGCN:
            sizes = self.width_in, RELATIONAL_HIDDEN, self.width
            return sum(RelationalProblem(self.graph, *two, self.dtype).flops() for two in pairwise(sizes))
        if op is NetworkOp.ATTENTION:
            return 12 * nnz * self.width
        layers = self.pruned.layers
        if not self.pruned.blocks:
            # Gradients of weights, and of what layers see, take as much again each, but for the first layer's input.
            backward = 2 * nnz - int(self.matrix.indptr[layers[0].filters]) if op is NetworkOp.PRUNED_TRAINING else 0
            return 2 * (nnz + backward) * self.width_in * self.width
        found, side, ends = 0, self.width_in // 4, accumulate(one.filters for one in layers)
        for layer, end in zip(layers, ends, strict=True):
            # The layer that strides comes before its block's last and the shortcut, which sees the larger image, too.
            side = side // layer.stride if layer.taps > 1 else side
            part = int(self.matrix.indptr[end] - self.matrix.indptr[end - layer.filters])
            found += 2 * part * self.width * side**2
        return found

    def operand_bytes(self) -> int:
        """Give the bytes of the values alone: what else is read depends on the network."""
        return self.dtype.itemsize * self.matrix.nnz

    def compulsory_bytes(self) -> int:
        """Give the bytes of the matrix in CSR."""
        return self.operand_bytes() + self.matrix.pattern_bytes
