"""Host targets that hold whole tables of kernels, for tests that walk them in ring two."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike, NDArray

from spmark.impls.runtime.device import find
from spmark.impls.runtime.host.target import HostKernel, HostTarget
from spmark.impls.runtime.template import Instance, KernelTemplate


class TableTarget(HostTarget):
    """One executable with a whole table, compiled once; what else is asked for is compiled when it is."""

    def __init__(self, template: KernelTemplate) -> None:
        super().__init__(find("host-simt"))
        self.kernels = {kernel.instance: kernel for kernel in super().load(list(template.instances()))}

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[np.generic]:
        """Allocate, full of NaN: what a workspace held before must not matter."""
        found = np.zeros(shape, dtype)
        if np.issubdtype(found.dtype, np.floating):
            found.fill(np.nan)
        return found

    def load(self, instances: Sequence[Instance]) -> list[HostKernel]:
        other = [instance for instance in instances if instance not in self.kernels]
        self.kernels.update((kernel.instance, kernel) for kernel in super().load(other))
        return [self.kernels[instance] for instance in instances]
