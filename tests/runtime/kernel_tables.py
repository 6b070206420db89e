"""Every kernel template of the project: of each implementation in the table, and the shared ones."""

from __future__ import annotations

import os
from importlib import import_module

from spmark.impls.kernels.shared import SHARED
from spmark.impls.runtime.template import KernelTemplate
from spmark.impls.table import IMPLEMENTATIONS


def templates() -> list[KernelTemplate]:
    found = dict.fromkeys(SHARED)
    for entry in IMPLEMENTATIONS.values():
        module, _, label = entry.partition(":")
        found |= dict.fromkeys(getattr(import_module(module), label).kernels)
    return list(found)


def workers() -> int:
    return os.cpu_count() or 1
