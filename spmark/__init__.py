"""spmark: a benchmark suite and reproducibility harness for sparse GPU kernels."""

from importlib.metadata import version

__all__ = ["__version__"]
__version__ = version("spmark")
