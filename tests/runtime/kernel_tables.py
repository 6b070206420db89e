"""Every kernel template of the project: of each implementation in the table, and the shared ones."""

from __future__ import annotations

import os
from importlib import import_module

from spmark.impls.kernels.device_csr import CSR_FACTS, CSR_PIECES
from spmark.impls.kernels.hyb_spmm import FILL_ELL_BUCKETS
from spmark.impls.kernels.kernel_maps import COUNT_INPUTS, INSERT_VOXELS, WRITE_INPUTS
from spmark.impls.kernels.plain import SDDMM_PLAIN, SPMM_PLAIN
from spmark.impls.kernels.row_softmax import SOFTMAX_ROWS, SOFTMAX_ROWS_GRADIENT
from spmark.impls.kernels.shared_rows import ZERO_ROWS
from spmark.impls.runtime.template import KernelTemplate
from spmark.impls.table import IMPLEMENTATIONS, RELATIONAL


def templates() -> list[KernelTemplate]:
    unlisted = (ZERO_ROWS, FILL_ELL_BUCKETS, SPMM_PLAIN, SDDMM_PLAIN, CSR_FACTS, CSR_PIECES)
    more = (INSERT_VOXELS, COUNT_INPUTS, WRITE_INPUTS, SOFTMAX_ROWS, SOFTMAX_ROWS_GRADIENT)
    found = dict.fromkeys((*unlisted, *more))  # listed by no implementation
    for entry in (*IMPLEMENTATIONS.values(), *RELATIONAL.values()):
        module, _, label = entry.partition(":")
        found |= dict.fromkeys(getattr(getattr(import_module(module), label), "kernels", ()))
    return list(found)


def workers() -> int:
    return os.cpu_count() or 1
