"""Tests that need CUDA's compilers, which the image without a GPU does not hold."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

needs_compilers = pytest.mark.skipif(find_spec("cupy_backends") is None, reason="needs CUDA's compilers (extra dev)")
