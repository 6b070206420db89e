"""The softmax of each row's non-zeros on a target, and its gradient."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from spmark.impls.core.interfaces import DeviceArray
from spmark.impls.core.problem import DType
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import C_TYPES, ELEMENTS, KernelTemplate

_THREADS = 128
_WARP = 32
_SOURCE = Path(__file__).parent / "row_softmax.cu"
_SPACE: dict[str, Any] = {"T": ELEMENTS, "threads": (_THREADS,)}
SOFTMAX_ROWS = KernelTemplate(_SOURCE, "softmax_rows", _SPACE)
SOFTMAX_ROWS_GRADIENT = KernelTemplate(_SOURCE, "softmax_rows_gradient", _SPACE)


def softmax_rows(target: Target, dtype: DType, indptr: DeviceArray, arrays: tuple[DeviceArray, ...]) -> None:
    """Enqueue the softmax of each row, or its gradient; sums are float32. O(nnz + 32 I), a row being one warp's.

    Parameters
    ----------
    target : Target
    dtype : DType
        Of the arrays.
    indptr : (I + 1,) int32
    arrays : two or three arrays (nnz,)
        Scores and the result; or the result, its gradient, and the gradient of the scores, which is written.
    """
    template = SOFTMAX_ROWS if len(arrays) == 2 else SOFTMAX_ROWS_GRADIENT
    (kernel,) = target.load([template.instance(T=C_TYPES[dtype], threads=_THREADS)])
    num_rows = len(indptr) - 1
    kernel.launch((ceil_div(num_rows, _THREADS // _WARP), 1, 1), (np.int32(num_rows), indptr, *arrays))
