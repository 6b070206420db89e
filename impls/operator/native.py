"""Products of `spmark.torch` that cost what a launch costs: an extension in C++ has the operator and its gradient.

Of relational products it has those that record no gradient.

The extension (``native.cpp``) is compiled by g++ against PyTorch's headers at the first product on a GPU, in the
background, which takes half a minute. Until it is there, where it cannot be built, and for every plan or call that does
not fit it, products take the path of `spmark.impls.operator.compiled`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch  # pyright: ignore[reportMissingImports]
from torch import Tensor  # pyright: ignore[reportMissingImports]

from spmark.impls.operator.extension import Background, built
from spmark.impls.operator.torchops import matrix_of

if TYPE_CHECKING:
    from spmark.impls.operator.launches import Held


def build(backend: str = "CUDA") -> Any:
    """Give the extension, compiled or out of the cache, and let it serve ``spmark::spmm`` and ``sddmm``.

    Raises as `built`.

    Parameters
    ----------
    backend : str
        PyTorch's name of the device whose tensors it serves.
    """
    root = Path(torch.__file__).parent
    options = [
        "-std=c++20",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        *(f"-isystem{root / folder}" for folder in ("include", "include/torch/csrc/api/include")),
    ]
    libraries = [f"-L{root / 'lib'}", f"-Wl,-rpath,{root / 'lib'}", "-lc10", "-ltorch_cpu", "-ltorch_python"]
    versions = (torch.__version__, str(torch.version.git_version))
    module = built(Path(__file__).with_name("native.cpp"), *versions, options=options, libraries=libraries)
    module.serve(matrix_of, backend)
    return module


EXTENSION = Background(build, "products take their path in Python")


class NativeCalls:
    """The plans of one matrix whose launches the extension makes.

    Parameters
    ----------
    handle : int
        By which the operators of `torch.library` find the matrix.
    """

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._lock = threading.Lock()
        self._matrix: Any = None
        self._seen: set[tuple[int, torch.dtype, Any, int]] = set()
        self._module: Any = None

    def spmm(self, owner: Any, b: Any) -> Any:
        """Compute A B where a plan and the call fit, else give NotImplemented; ``owner`` lives as long as gradients."""
        return NotImplemented if self._module is None else self._module.spmm(self._matrix, owner, b)

    def rgms(self, x: Any, w: Any) -> Any:
        """Compute the sum of A_r X W_r where a plan and the call fit and no gradient is recorded, as `spmm` does."""
        return NotImplemented if self._module is None else self._module.rgms(self._matrix, x, w)

    def learn(self, find: Callable[[Any], Held | None], product: int, width: Any, first: Tensor) -> None:
        """Take up a plan whose launches were noted, after its first product.

        Parameters
        ----------
        find : callable
            Gives the plan of a width, where its launches were noted.
        product : int
            0 for A B, 1 for A^T B, 2 for X Y^T at A's non-zeros, 3 for the sum of A_r X W_r, as the extension numbers
            them.
        width : int or (int, int)
            J, or the two widths of a relational product.
        first : Tensor
            The first operand, on a GPU.
        """
        key = (product, first.dtype, width, first.get_device())
        if key in self._seen:
            return
        module = EXTENSION.found()
        if module is None:
            return
        with self._lock:
            if key in self._seen:
                return
            self._seen.add(key)
            held = find(width)
            if held is None:
                return
            if self._matrix is None:
                self._matrix = module.matrix(self._handle)
            plan, (operands, result) = held.plan, held.plan.shapes
            module.add(self._matrix, product, held.made, (*operands, result), first, plan.deterministic, plan)
            self._module = module
