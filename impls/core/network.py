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
from spmark.impls.core.voxels import coarser, distinct_voxels, kernel_map

HIDDEN = 128
"""Hidden features of graph networks: SparseTIR, section 4.2.3."""
RELATIONAL_HIDDEN = 32
"""Hidden features of RGCN: SparseTIR, section 4.4.1."""
GRAPH_NETWORKS = (NetworkOp.GRAPHSAGE, NetworkOp.GCN)
RELATIONAL_NETWORKS = (NetworkOp.RGCN, NetworkOp.MINKUNET)
_DOWN, _UP = (32, 32, 64, 128, 256), (256, 128, 96, 96)
"""Features of MinkUNet's levels on the way down, and on the way up: SPVNAS (Tang et al., ECCV 2020)."""


@dataclass(frozen=True, eq=False)
class NetworkProblem:
    """A step of a network.

    =================  =====================  ==================================  ========
    op                 matrix                 width_in                            width
    =================  =====================  ==================================  ========
    graphsage, gcn     the graph              features of a node                  classes
    rgcn               the relations, side    features of a node                  classes
                       by side
    minkunet           voxels, their three    features of a voxel                 classes
                       coordinates as values
    pruned_forward,    weights on a diagonal  BERT: tokens of a sequence,         batch
    pruned_training                           ResNet: pixels of an image's side
    attention          masks on a diagonal    heads                               features
    =================  =====================  ==================================  ========

    A graph's values follow from its pattern. Training is a step of it: forward, backward, new parameters; so are
    ``graphsage`` and ``gcn``. ``attention`` is forward and backward, ``rgcn`` and ``minkunet`` are forward.
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

    @cached_property
    def maps(self) -> dict[str, RelationalCsr]:
        """Maps of ``minkunet``: ``l0`` to ``l4`` within a level, ``down1`` ... onto one, ``up1`` ... back from it.

        Raises
        ------
        ProblemError
            The matrix does not hold coordinates.
        """
        values = self.matrix.values
        if self.matrix.shape[1] != 3 or values.size != 3 * self.matrix.num_rows or (values != np.rint(values)).any():
            raise ProblemError(
                f"{self.op}: expected a row of three whole numbers for each voxel, such as minkunet/drawn/voxels with "
                f"values: stored, found the matrix {self.name!r} of shape {self.matrix.shape}"
            )
        voxels = values.reshape(-1, 3).astype(np.int32)
        found = {"l0": kernel_map(voxels, voxels)}
        for level in range(1, len(_DOWN)):
            finer, voxels = voxels, distinct_voxels(coarser(voxels))[0]
            down = kernel_map(voxels, finer, 2, 2)
            found |= {f"l{level}": kernel_map(voxels, voxels), f"down{level}": down, f"up{level}": down.transposed()}
        return found

    @property
    def convolutions(self) -> list[tuple[str, int, int]]:
        """Map, columns of X and of Y of each convolution of ``minkunet``."""
        return minkunet_convolutions(self.width_in)

    @property
    def relational(self) -> list[RelationalProblem]:
        """The products of ``rgcn`` or of ``minkunet``, from the first to the last."""
        if self.op is NetworkOp.MINKUNET:
            layers = [(self.maps[name], before, after) for name, before, after in self.convolutions]
        else:
            sizes = self.width_in, RELATIONAL_HIDDEN, self.width
            layers = [(self.graph, before, after) for before, after in pairwise(sizes)]
        return [RelationalProblem(*layer, self.dtype) for layer in layers]

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
        if op in RELATIONAL_NETWORKS:
            return sum(problem.flops() for problem in self.relational)
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


def minkunet_convolutions(width_in: int) -> list[tuple[str, int, int]]:
    """Give the map, and the columns of X and of Y, of each convolution of MinkUNet, from the first to the last.

    After each move to another level come two blocks of two convolutions, which on the way up also take what the level
    had on the way down.
    """
    found, before = [("l0", width_in, _DOWN[0]), ("l0", _DOWN[0], _DOWN[0])], _DOWN[0]
    for level, after in enumerate(_DOWN[1:], 1):
        found += [(f"down{level}", before, before), (f"l{level}", before, after), *[(f"l{level}", after, after)] * 3]
        before = after
    for level, after in zip(range(len(_UP), 0, -1), _UP, strict=True):
        found += [(f"up{level}", before, after), (f"l{level - 1}", after + _DOWN[level - 1], after)]
        found += [(f"l{level - 1}", after, after)] * 3
        before = after
    return found
