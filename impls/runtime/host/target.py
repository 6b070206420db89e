"""The host as a target: NumPy arrays, and every launch a child process under AddressSanitizer and UBSan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spmark.impls.runtime.host.compile import compile_host
from spmark.impls.runtime.host.launch import launch_host
from spmark.impls.runtime.target import Grid, Kernel, Target
from spmark.impls.runtime.template import Instance


@dataclass
class HostKernel:
    """A kernel in an executable."""

    instance: Instance
    executable: Path

    def allow_shared(self, shared_bytes: int) -> None:
        """Do nothing: the host has no limit to lift."""

    def launch(self, grid: Grid, args: Sequence[Any], shared_bytes: int = 0, overlap: bool = False) -> None:
        """Run to the end, and so before any other grid; a fault raises `KernelFault` with the sanitizer's report."""
        if all(grid):
            block = (self.instance.threads, 1, 1)
            launch_host(self.executable, self.instance.expression, grid, block, shared_bytes, args)


class HostTarget(Target):
    """Runs kernels for their results and their memory safety, each launch to its end; its times mean nothing."""

    def load(self, instances: Sequence[Instance]) -> list[Kernel]:
        """Compile one executable for each source file, holding every instance of it that is asked for."""
        expressions: dict[Path, set[str]] = {}
        for instance in instances:
            expressions.setdefault(instance.template.source, set()).add(instance.expression)
        executables = {source: compile_host(source, sorted(wanted)) for source, wanted in expressions.items()}
        return [HostKernel(instance, executables[instance.template.source]) for instance in instances]

    def synchronize(self) -> None:
        """Nothing is pending: launches run to the end."""
