"""Every kernel template of the project: of each implementation in the table, and the shared ones."""

from __future__ import annotations

import os
from importlib import import_module

from spmark.impls.kernels.column_bits import COUNT_MARKS, MARK_COLUMNS
from spmark.impls.kernels.hyb_convert import FILL_ELL_BUCKETS
from spmark.impls.kernels.plain import SDDMM_PLAIN, SPMM_PLAIN
from spmark.impls.kernels.zeroing import ZERO_ROWS
from spmark.impls.runtime.template import KernelTemplate
from spmark.impls.table import IMPLEMENTATIONS


def templates() -> list[KernelTemplate]:
    shared = (ZERO_ROWS, FILL_ELL_BUCKETS, MARK_COLUMNS, COUNT_MARKS, SPMM_PLAIN, SDDMM_PLAIN)
    found: dict[tuple[str, str], KernelTemplate] = {(str(t.source), t.name): t for t in shared}
    for entry in IMPLEMENTATIONS.values():
        module, _, label = entry.partition(":")
        for template in getattr(import_module(module), label).kernels:
            found[(str(template.source), template.name)] = template
    return list(found.values())


def workers() -> int:
    return os.cpu_count() or 1
