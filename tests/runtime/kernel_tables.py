"""Every kernel template of the project: of each implementation in the table, and the shared ones."""

from __future__ import annotations

import os
from importlib import import_module

from spmark.impls.kernels.shared import SHARED
from spmark.impls.runtime.template import KernelTemplate
from spmark.impls.table import IMPLEMENTATIONS


def templates() -> list[KernelTemplate]:
    found: dict[tuple[str, str], KernelTemplate] = {(str(t.source), t.name): t for t in SHARED}
    for entry in IMPLEMENTATIONS.values():
        module, _, label = entry.partition(":")
        for template in getattr(import_module(module), label).kernels:
            found[(str(template.source), template.name)] = template
    return list(found.values())


def workers() -> int:
    return os.cpu_count() or 1
