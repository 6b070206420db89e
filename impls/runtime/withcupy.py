"""CuPy, for modules that need a GPU; where the import fails, the error says which extra to install."""

from __future__ import annotations

from spmark.impls.core.errors import DeviceError, how_to_install

try:
    import cupy
except ImportError as error:
    raise DeviceError(
        f"expected CuPy, without which nothing runs on a GPU, found none ({error}): {how_to_install('gpu')}"
    ) from error

__all__ = ["cupy"]
