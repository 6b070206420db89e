"""spmark: a benchmark suite and reproducibility harness for sparse GPU kernels, and their products for a person's code.

>>> import spmark
>>> c = spmark.spmm(a, b)                       # once
>>> op = spmark.compile(a, width=b.shape[1])    # for many b
>>> c = op(b)
>>> A = spmark.SparseOperator(a)                # the same by signs: A @ b, A.T @ b

`spmark.torch` has products with gradients, and `load_records` reads what `spmark run` has recorded.

`compile` has the reference. What a product needs is imported at the first use, so that importing the package is quick.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spmark.impls.operator.api import compile as compile
    from spmark.impls.operator.api import load as load
    from spmark.impls.operator.api import sddmm as sddmm
    from spmark.impls.operator.api import spmm as spmm
    from spmark.impls.operator.compiled import CompiledOperator as CompiledOperator
    from spmark.impls.operator.sparse import SparseOperator as SparseOperator
    from spmark.report.records import load_records as load_records

__version__ = version("spmark")
_PLACES = {
    "CompiledOperator": "spmark.impls.operator.compiled",
    "SparseOperator": "spmark.impls.operator.sparse",
    "load_records": "spmark.report.records",
    **dict.fromkeys(("compile", "load", "sddmm", "spmm"), "spmark.impls.operator.api"),
}
__all__ = ["CompiledOperator", "SparseOperator", "__version__", "compile", "load", "load_records", "sddmm", "spmm"]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use."""
    if name == "torch":
        return import_module("spmark.torch")
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_PLACES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """List the public names, for completion."""
    return sorted({*globals(), *_PLACES})
