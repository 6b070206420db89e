"""CuPy, for what runs on a GPU alone; where it cannot be imported, an error that says which extra brings it."""

from __future__ import annotations

from spmark.impls.core.errors import DeviceError

try:
    import cupy
except ImportError as error:
    raise DeviceError(
        f"expected CuPy, without which nothing runs on a GPU, found none ({error}): pip install 'spmark[gpu]'"
    ) from error

__all__ = ["cupy"]
