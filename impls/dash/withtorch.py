"""The one place that imports PyTorch for DASH, and the random numbers of new layers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import needed

Tensor = Any
"""A `torch.Tensor`; the type has no name here, since reading a model's card needs no PyTorch."""
Layers = Any
"""A `torch.nn.Module`."""


def load_torch() -> Any:
    """Give the module torch.

    Raises
    ------
    UnsupportedError
        PyTorch is not installed.
    """
    return needed("torch", "PyTorch", "dash")


def best_device() -> str:
    """Give PyTorch's name of the device to train on: a GPU where PyTorch sees one."""
    return "cuda" if load_torch().cuda.is_available() else "cpu"


def computer(device: str) -> tuple[str, int]:
    """Give the name of what computes on a device, and the cores of the host that PyTorch uses."""
    torch = load_torch()
    return "cpu" if device == "cpu" else torch.cuda.get_device_name(), torch.get_num_threads()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Let PyTorch's random numbers on the CPU begin at a seed inside, and go on outside as if nothing had happened."""
    torch = load_torch()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


@contextmanager
def quick_products(device: str) -> Iterator[None]:
    """Let a GPU round the operands of float32 products to TF32 inside; a processor computes as ever."""
    matmul = load_torch().backends.cuda.matmul
    before = matmul.allow_tf32
    matmul.allow_tf32 = device != "cpu"
    try:
        yield
    finally:
        matmul.allow_tf32 = before


def to_numpy(tensor: Tensor) -> NDArray[Any]:
    """Give a tensor's values as an array on the host."""
    return np.asarray(tensor.detach().cpu())
