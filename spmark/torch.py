"""Sparse products with gradients for PyTorch.

`SparseMatrix` and `SparseLinear`; of several relations `RelationalMatrix`, `KernelMap` and `SparseConv3d`.

Products are operators of `torch.library`. Autograd differentiates them as often as asked. Autocast,
`torch.use_deterministic_algorithms` and `torch.compile` treat them like PyTorch's own, without a break of the graph.

Limits of `torch.export`: a program that is exported names a matrix by a number that holds in this process alone, while
the matrix lives. Run in another process, such a program raises `OperandError`. To move a product, move the matrix
(`SparseMatrix.values` and its pattern) and export the program again there. A saved operator (`spmark.load`) is no part
of an exported program, and TorchScript takes neither. `torch.func.grad` refuses these operators, as it refuses every
operator whose gradient is registered through `torch.library`; `torch.func.jvp` and `torch.func.jacfwd` take them, and
PyTorch refuses one of the two inside of the other.
"""

from spmark.impls.core.errors import how_to_install

try:
    import torch as _torch  # noqa: F401  # pyright: ignore[reportMissingImports]
except ImportError as error:
    raise ImportError(f"expected PyTorch, found none ({error}): {how_to_install('torch')}") from error

from spmark.impls.operator.convolution import KernelMap, SparseConv3d, voxelize
from spmark.impls.operator.pytorch import SparseLinear, SparseMatrix
from spmark.impls.operator.relations import RelationalMatrix

__all__ = ["KernelMap", "RelationalMatrix", "SparseConv3d", "SparseLinear", "SparseMatrix", "voxelize"]
