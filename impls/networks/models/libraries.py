"""How libraries compute the sparse layers of a network: products, and the layers that are made of them.

Every library gets the same weights and the same order of operations. A layer of activations (T, K) gives (T, I) as a
view of the product's (I, T), so that the layer after an element-wise function takes it without a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch import Tensor, nn  # pyright: ignore[reportMissingImports]
from torch.nn import functional as F  # pyright: ignore[reportMissingImports]

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.problem import Csr, Op, Problem, grouped
from spmark.impls.core.pruned import PrunedLayer
from spmark.impls.core.relational import RelationalCsr

Layer = Callable[[Tensor], Tensor]
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Gives softmax(Q K^T / sqrt(J) at the mask's entries) V of heads that stand below each other, all (heads T, J)."""


class Library:
    """Sparse products of a library on one device and in one type; subclasses have at least `matrix`.

    Parameters
    ----------
    device : DeviceSpec
    dtype : torch.dtype
        Of everything that is computed.
    network : dataclass, optional
        Of `spmark.impls.networks.plan`, with the tunables of the library.

    Attributes
    ----------
    place : str
        PyTorch's name of the device.
    """

    def __init__(self, device: DeviceSpec, dtype: torch.dtype, network: Any = None) -> None:
        self.device, self.dtype, self.network = device, dtype, network
        self.place = "cpu" if device.kind is DeviceKind.CPU else f"cuda:{torch.cuda.current_device()}"
        self.rounded = dtype
        """What inputs and weights are rounded to beforehand."""

    def matrix(self, matrix: Csr, widths: list[int], *, trained: bool = False, backward: bool = True) -> Any:
        """Give A on the device, whose ``spmm(b, values=None)`` and ``sddmm(x, y)`` have gradients.

        Parameters
        ----------
        matrix : Csr
        widths : list of int
            J of the products.
        trained : bool
            Whether products get values, in place of the matrix's own.
        backward : bool
            Whether gradients are needed.
        """
        raise NotImplementedError

    def relational(self, graph: RelationalCsr, weights: Sequence[Tensor]) -> list[Layer]:
        """Give a layer of each W (R, width_in, width_out): the sum of A_r X W_r over relations r, without gradient."""
        raise NotImplementedError

    def linear(self, weight: Csr, bias: Tensor, tokens: int, trained: bool) -> nn.Module:
        """Give the layer x W^T + bias of a pruned W."""
        return _Linear(self.matrix(weight, [tokens], trained=trained, backward=trained), weight, bias, trained, self)

    def convolution(
        self, layer: PrunedLayer, weight: Csr, bias: Tensor, relu: bool, images: tuple[int, int, int, int]
    ) -> nn.Module:
        """Give a convolution (N, C, H, W) without gradients, with bias and, where asked for, ReLU."""
        num, _, height, width = images
        pixels = num * (height // layer.stride) * (width // layer.stride)
        return _Convolution(self.matrix(weight, [pixels], backward=False), layer, bias, relu)

    def attention(self, mask: Csr, heads: int, width: int) -> Attention:
        """Give attention by SDDMM, a softmax of rows, and SpMM."""
        pattern = self.matrix(mask, [width], trained=True)

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            found: Tensor = pattern.spmm(v, pattern.softmax(pattern.sddmm(q * width**-0.5, k)))
            return found

        return attend

    def drawn(self, generator: torch.Generator, *shape: int, scale: float = 1.0) -> Tensor:
        """Draw normal numbers, which are the same for every library on a device."""
        return self.tensor(torch.randn(shape, generator=generator, device=self.place) * scale)

    def tensor(self, array: Any) -> Tensor:
        """Copy an array to the device, in the library's type."""
        return torch.as_tensor(array).to(self.place, self.rounded).to(self.dtype)


class _Linear(nn.Module):  # type: ignore[misc]
    def __init__(self, matrix: Any, weight: Csr, bias: Tensor, trained: bool, library: Library) -> None:
        super().__init__()
        self._matrix = matrix
        self.values = nn.Parameter(library.tensor(weight.values)) if trained else None
        self.bias = nn.Parameter(bias)  # behind the weights, as in the layer with its zeros

    def forward(self, x: Tensor) -> Tensor:
        return self._matrix.spmm(x.T.contiguous(), self.values).T + self.bias


class _Convolution(nn.Module):  # type: ignore[misc]
    """An im2col, which is a view of images whose channels are the first axis in memory where a filter is one tap."""

    def __init__(self, matrix: Any, layer: PrunedLayer, bias: Tensor, relu: bool) -> None:
        super().__init__()
        self._matrix, self._layer, self._bias, self._relu = matrix, layer, bias[:, None], relu

    def forward(self, x: Tensor) -> Tensor:
        taps, stride = self._layer.taps, self._layer.stride
        if taps > 1:
            padded = F.pad(x, (taps // 2,) * 4).unfold(2, taps, stride).unfold(3, taps, stride)
            seen = padded.permute(1, 4, 5, 0, 2, 3)
        else:
            seen = x[:, :, ::stride, ::stride].transpose(0, 1)
        y = self._matrix.spmm(seen.reshape(self._layer.shape[1], -1)) + self._bias
        y = y.relu_() if self._relu else y
        return y.view(-1, *seen.shape[-3:]).transpose(0, 1)


class Spmark(Library):
    """`spmark.torch.SparseMatrix`."""

    def matrix(self, matrix: Csr, widths: list[int], *, trained: bool = False, backward: bool = True) -> Any:
        """Plan the products now."""
        from spmark.impls.operator.pytorch import SparseMatrix

        how: dict[str, Any] = {"device": torch.device(self.place).type, "budget_s": self.network.budget_s}
        found = SparseMatrix(matrix, dtype=self.dtype, use=self.network.use, **how)
        found.plan(widths, backward=backward, given_values=trained)
        return found

    def relational(self, graph: RelationalCsr, weights: Sequence[Tensor]) -> list[Layer]:
        """Plan the products at their first call; ``auto`` is the first implementation that has them."""
        from spmark.impls.operator.relations import RelationalMatrix

        found = RelationalMatrix(graph)
        if self.network.use != "auto":
            found.in_order = ((self.network.use, {} if self.network.tuned else {"tuned": False}),)
        return [partial(found.rgms, w=w) for w in weights]


class TorchSparse(Library):
    """PyTorch's CSR, which calls cuSPARSE on a GPU; its transpose is laid out once."""

    def matrix(self, matrix: Csr, widths: list[int], *, trained: bool = False, backward: bool = True) -> Any:
        """Give A and its transpose."""
        return _TorchMatrix(matrix, self)

    def relational(self, graph: RelationalCsr, weights: Sequence[Tensor]) -> list[Layer]:
        """Give layers of one relation after the other: rows of X gathered, multiplied and added to rows of Y."""
        order, bounds = graph.by_relation
        _, rows, cols = graph.edges
        lengths = np.diff(bounds).tolist()
        into, of = (torch.from_numpy(one[order]).to(self.place, torch.int64).split(lengths) for one in (rows, cols))

        def layer(w: Tensor, x: Tensor) -> Tensor:
            y = x.new_zeros(graph.num_rows, w.shape[2])
            for i, j, one in zip(into, of, w, strict=True):
                y.index_add_(0, i, x[j] @ one)
            return y

        return [partial(layer, w) for w in weights]


class _TorchMatrix:
    # Compilation cannot see sparse tensors: it goes around a product, and compiles what stands between two.
    def __init__(self, matrix: Csr, library: Library) -> None:
        origins, bounds = grouped(matrix.indices, matrix.num_cols)
        ends = (matrix.indptr, matrix.indices), (bounds, matrix.rows_of_entries()[origins])
        self.forward_ends, self.backward_ends = (
            [torch.from_numpy(array).to(library.place) for array in pair] for pair in ends
        )
        self.origins = torch.from_numpy(origins).to(library.place)
        self.values, self.shape = library.tensor(matrix.values), matrix.shape
        self.turned = self.values[self.origins]
        self.rows = torch.from_numpy(matrix.rows_of_entries()).to(library.place)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def spmm(self, b: Tensor, values: Tensor | None = None) -> Tensor:
        return _TorchSpmm.apply(b, self.values if values is None else values, self, values is not None)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def sddmm(self, x: Tensor, y: Tensor) -> Tensor:
        return _TorchSddmm.apply(x, y, self)

    def softmax(self, scores: Tensor) -> Tensor:
        shares = (scores - self._over_rows(scores.detach(), "max")).exp()
        return shares / self._over_rows(shares, "sum")

    def _over_rows(self, values: Tensor, how: str) -> Tensor:
        found = torch.segment_reduce(values, how, offsets=self.forward_ends[0].long(), unsafe=True)
        return found.index_select(0, self.rows)

    def times(self, b: Tensor, values: Tensor, turned: bool = False) -> Tensor:
        ends, shape = (self.backward_ends, self.shape[::-1]) if turned else (self.forward_ends, self.shape)
        # Row by row is the layout of B with which cuSPARSE is fastest.
        return torch.sparse_csr_tensor(*ends, values, shape, check_invariants=False) @ b.contiguous()

    def sampled(self, x: Tensor, y: Tensor) -> Tensor:
        pattern = torch.sparse_csr_tensor(
            *self.forward_ends, torch.zeros_like(self.values), self.shape, check_invariants=False
        )
        return torch.sparse.sampled_addmm(pattern, x, y.T).values()


class _TorchSpmm(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, b: Tensor, values: Tensor, matrix: _TorchMatrix, given: bool) -> Tensor:
        ctx.matrix, ctx.given = matrix, given
        ctx.save_for_backward(b if given else None, values)
        return matrix.times(b, values)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (b, values), matrix = ctx.saved_tensors, ctx.matrix
        of_b = None
        if ctx.needs_input_grad[0]:
            of_b = matrix.times(grad, values[matrix.origins] if ctx.given else matrix.turned, turned=True)
        return of_b, matrix.sampled(grad, b) if ctx.given and ctx.needs_input_grad[1] else None, None, None


class _TorchSddmm(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, matrix: _TorchMatrix) -> Tensor:
        ctx.matrix = matrix
        ctx.save_for_backward(x, y)
        return matrix.sampled(x, y)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x, y), matrix = ctx.saved_tensors, ctx.matrix
        return matrix.times(y, grad), matrix.times(x, grad[matrix.origins], turned=True), None


class Pyg(Library):
    """PyTorch Geometric's message passing, which holds a message for every non-zero."""

    def matrix(self, matrix: Csr, widths: list[int], *, trained: bool = False, backward: bool = True) -> Any:
        """Give A as edges, for `spmm` with its own values."""
        return _PygMatrix(matrix, self)

    def relational(self, graph: RelationalCsr, weights: Sequence[Tensor]) -> list[Layer]:
        """Give layers without a root's weights and without bias."""
        from torch_geometric import nn as layers  # pyright: ignore[reportMissingImports]

        relation, rows, cols = (torch.from_numpy(one).to(self.place, torch.int64) for one in graph.edges)
        edges, found = torch.stack([cols, rows]), list[Layer]()

        def product(layer: nn.Module, x: Tensor) -> Tensor:
            return layer(x, edges, relation).to(self.dtype)  # RGCNConv adds relations up in float32

        for w in weights:
            num, *sizes = w.shape
            layer = getattr(layers, self.network.layer)(*sizes, num, aggr="add", root_weight=False, bias=False)
            layer.weight = nn.Parameter(w)
            found.append(partial(product, layer))
        return found


class _PygMatrix:
    def __init__(self, matrix: Csr, library: Library) -> None:
        from torch_geometric.nn import MessagePassing  # pyright: ignore[reportMissingImports]

        class Weighted(MessagePassing):  # type: ignore[misc]
            def forward(self, x: Tensor, edges: Tensor, weight: Tensor) -> Tensor:
                return self.propagate(edges, x=x, weight=weight)

            def message(self, x_j: Tensor, weight: Tensor) -> Tensor:
                return x_j * weight

        ends = np.stack([matrix.indices, matrix.rows_of_entries()]).astype(np.int64)
        self._edges, self._layer = torch.from_numpy(ends).to(library.place), Weighted(aggr="sum")
        self._weights = library.tensor(matrix.values)[:, None]

    def spmm(self, b: Tensor) -> Tensor:
        return self._layer(b, self._edges, self._weights)


class Dgl(Library):
    """DGL's u_mul_e_sum."""

    def matrix(self, matrix: Csr, widths: list[int], *, trained: bool = False, backward: bool = True) -> Any:
        """Give A as a graph, for `spmm` with its own values."""
        return _DglMatrix(matrix, self)

    def relational(self, graph: RelationalCsr, weights: Sequence[Tensor]) -> list[Layer]:
        """Give ``RelGraphConv`` of edges sorted by relation, without a loop of each node to itself and without bias."""
        from spmark.impls.dgl.plan import load_dgl

        dgl = load_dgl()
        from dgl.nn.pytorch import RelGraphConv  # pyright: ignore[reportMissingImports]

        order, _ = graph.by_relation
        relation, rows, cols = (torch.from_numpy(one[order]).to(self.place, torch.int64) for one in graph.edges)
        edges, found = dgl.graph((cols, rows), num_nodes=graph.num_rows), list[Layer]()

        def product(layer: nn.Module, x: Tensor) -> Tensor:
            return layer(edges, x, relation, presorted=True)

        for w in weights:
            num, *sizes = w.shape
            layer = RelGraphConv(*sizes, num, bias=False, self_loop=False)
            layer.linear_r.W = nn.Parameter(w)
            found.append(partial(product, layer))
        return found


class _DglMatrix:
    def __init__(self, matrix: Csr, library: Library) -> None:
        from spmark.impls.dgl.plan import load_dgl

        dgl = load_dgl()
        ends = torch.from_numpy(matrix.indices), torch.from_numpy(matrix.rows_of_entries())
        self._product = dgl.ops.u_mul_e_sum
        self._graph = dgl.graph(ends, num_nodes=matrix.num_rows).formats(["csr", "csc"]).to(library.place)
        self._graph.create_formats_()
        self._weights = library.tensor(matrix.values)[:, None]

    def spmm(self, b: Tensor) -> Tensor:
        return self._product(self._graph, b, self._weights)


class Dense(Library):
    """Layers with their zeros."""

    def linear(self, weight: Csr, bias: Tensor, tokens: int, trained: bool) -> nn.Module:
        """Give the layer with its zeros; training multiplies the weight by its mask, as PyTorch's pruning does."""
        mask = self._filled(replace(weight, values=np.ones(weight.nnz, np.float32))) if trained else None
        return _DenseLinear(self._filled(weight), mask, bias)

    def convolution(
        self, layer: PrunedLayer, weight: Csr, bias: Tensor, relu: bool, images: tuple[int, int, int, int]
    ) -> nn.Module:
        """Give the convolution of the zeros, too."""
        found = nn.Conv2d(layer.channels, layer.filters, layer.taps, layer.stride, layer.taps // 2)
        found = found.to(self.place, self.dtype)
        found.weight.data.copy_(self._filled(weight).view(found.weight.shape))
        found.bias.data.copy_(bias)
        if self.dtype.itemsize < 4 or getattr(self.network, "tf32", False):
            found = found.to(memory_format=torch.channels_last)  # as the matrix unit wants it
        return nn.Sequential(found, nn.ReLU(inplace=True)) if relu else found

    def attention(self, mask: Csr, heads: int, width: int) -> Attention:
        """Give PyTorch's attention with a dense mask."""
        seen = self.seen(mask, heads)

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            q, k, v = (one.view(1, heads, -1, width) for one in (q, k, v))
            return F.scaled_dot_product_attention(q, k, v, attn_mask=seen).reshape(-1, width)

        return attend

    def seen(self, mask: Csr, heads: int) -> Tensor:
        """Give the mask of one head, of all of which it is the same, as (T, T) truth values."""
        tokens = mask.num_rows // heads
        first = slice(mask.indptr[tokens])
        found = torch.zeros(tokens, tokens, device=self.place, dtype=torch.bool)
        rows, cols = (
            torch.from_numpy(one[first]).long().to(self.place) for one in (mask.rows_of_entries(), mask.indices)
        )
        found[rows, cols] = True
        return found

    def _filled(self, weight: Csr) -> Tensor:
        found = torch.zeros(weight.shape, device=self.place, dtype=self.dtype)
        ends = (torch.from_numpy(one).long().to(self.place) for one in (weight.rows_of_entries(), weight.indices))
        found[tuple(ends)] = self.tensor(weight.values)
        return found


class _DenseLinear(nn.Module):  # type: ignore[misc]
    def __init__(self, weight: Tensor, mask: Tensor | None, bias: Tensor) -> None:
        super().__init__()
        self.weight, self.bias, self._mask = nn.Parameter(weight), nn.Parameter(bias), mask

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight if self._mask is None else self.weight * self._mask, self.bias)


class LoSpmm(Library):
    """LO-SpMM's fused kernels for pruned layers, whose weights and biases are literals of their code."""

    def linear(self, weight: Csr, bias: Tensor, tokens: int, trained: bool) -> nn.Module:
        """Compile the layer, with its bias."""
        from spmark.impls.lo_spmm.layers import fused_spmm

        plan = fused_spmm(Problem(Op.SPMM, weight, tokens), self.device, bias=bias.cpu().numpy())

        def layer(x: Tensor) -> Tensor:
            out = x.new_empty(weight.num_rows, tokens)
            plan.run((x.T.contiguous(),), out)
            return out.T

        return _Called(layer)

    def convolution(
        self, layer: PrunedLayer, weight: Csr, bias: Tensor, relu: bool, images: tuple[int, int, int, int]
    ) -> nn.Module:
        """Compile the convolution, with bias and ReLU."""
        from spmark.impls.lo_spmm.layers import conv2d

        flat = np.zeros(layer.shape, np.float32)
        flat[weight.rows_of_entries(), weight.indices] = weight.values
        filled = flat.reshape(layer.filters, layer.channels, layer.taps, layer.taps)
        how: dict[str, Any] = {"stride": layer.stride, "padding": layer.taps // 2, "relu": relu}
        plan = conv2d(filled, images, self.device, bias=bias.cpu().numpy(), **how)
        shape = images[0], layer.filters, images[2] // layer.stride, images[3] // layer.stride

        def convolved(x: Tensor) -> Tensor:
            out = x.new_empty(shape)
            plan.run((x.contiguous(),), out)
            return out

        return _Called(convolved)


class _Called(nn.Module):  # type: ignore[misc]
    def __init__(self, call: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.forward = call


class Flex(Library):
    """PyTorch's FlexAttention, compiled, over the blocks of 128 x 128 that the mask reaches."""

    def attention(self, mask: Csr, heads: int, width: int) -> Attention:
        """Compile attention for the mask."""
        from torch.nn.attention import flex_attention as flex  # pyright: ignore[reportMissingImports]

        seen = Dense(self.device, self.dtype).seen(mask, heads)
        blocks = flex.create_block_mask(lambda b, h, q, k: seen[q, k], None, None, *seen.shape, device=self.place)
        compiled = torch.compile(flex.flex_attention)

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            q, k, v = (one.view(1, heads, -1, width) for one in (q, k, v))
            return compiled(q, k, v, block_mask=blocks).reshape(-1, width)

        return attend
