"""Sparse products with gradients for PyTorch: `SparseMatrix` and `SparseLinear`."""

try:
    import torch as _torch  # noqa: F401  # pyright: ignore[reportMissingImports]
except ImportError as error:
    raise ImportError(f"expected PyTorch, found none ({error}): pip install 'spmark[torch]'") from error

from spmark.impls.operator.pytorch import SparseLinear, SparseMatrix

__all__ = ["SparseLinear", "SparseMatrix"]
