"""CuPy, for modules that need a GPU; where the import fails, the error says which extra to install."""

from __future__ import annotations

from spmark.impls.core.errors import DeviceError

try:
    import cupy
except ImportError as error:
    raise DeviceError(
        f"expected CuPy, without which nothing runs on a GPU, found none ({error}): pip install 'spmark[gpu]'"
    ) from error

__all__ = ["cupy"]
