"""In place of NVIDIA's library, which distributed finds on a machine with a GPU: no worker may ask it for a GPU."""

from __future__ import annotations


def nvmlInit() -> None:
    """Fail as the library does for a GPU that is not there."""
    raise RuntimeError("a worker asks NVML for a GPU")
