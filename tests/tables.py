"""Tables of kernels in tests: a test for every instance, and host targets that hold what a session's tests launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import DTypeLike, NDArray
from problems import random_csr
from sampling import covering, others

from spmark.impls.runtime.device import find
from spmark.impls.runtime.host.ring import HostKernel, HostTarget
from spmark.impls.runtime.template import C_TYPES, Instance, KernelTemplate

DTYPES = {name: dtype for dtype, name in C_TYPES.items()}
"""The dtype of each type of C++ that a table's `T` names."""
AWKWARD = {
    "ten_thousand_in_a_row": random_csr(20, 12_000, [0] * 4 + [3] * 3 + [10_000] + [0] * 11 + [3]),
    "one_column": random_csr(70, 1, [int(i % 3 == 0) for i in range(70)]),
    "one_row": random_csr(1, 70, [41]),
    "nothing": random_csr(40, 30, [0] * 40),
}
"""Shapes that kernels stumble over."""
TOGETHER = 32
"""Instances in an executable."""


def every_instance(
    *templates: KernelTemplate, where: Callable[[Instance], bool] = lambda _: True
) -> pytest.MarkDecorator:
    """Parametrise ``instance`` over tables, or parts: the sample, and as `full` what it leaves out (`others`)."""
    params = []
    for template in templates:
        instances = [*filter(where, template.instances())]
        sample = set(covering(instances))
        marks = {**dict.fromkeys(sample, ()), **dict.fromkeys(others(instances, sample), (pytest.mark.full,))}
        params += [pytest.param(one, id=one.expression, marks=marks[one]) for one in instances if one in marks]
    return pytest.mark.parametrize("instance", params)


class TableTarget(HostTarget):
    """Executables with the instances of a table that this session has tests for, each compiled when it is asked for.

    One holds neighbours of the table: processes that share the tests of a file wait little for each other.
    """

    def __init__(self, session: pytest.Session, *templates: KernelTemplate) -> None:
        super().__init__(find("host-simt"))
        asked = [item.callspec.params.get("instance") for item in session.items if hasattr(item, "callspec")]
        found = dict.fromkeys(one for one in asked if isinstance(one, Instance) and one.template in templates)
        wanted = list(found)
        starts = range(0, len(wanted), TOGETHER)
        self.neighbours = {
            one: wanted[start : start + TOGETHER] for start in starts for one in wanted[start:][:TOGETHER]
        }
        self.kernels: dict[Instance, HostKernel] = {}

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[np.generic]:
        """Allocate, full of NaN: what a workspace held before must not matter."""
        found = np.zeros(shape, dtype)
        if np.issubdtype(found.dtype, np.floating):
            found.fill(np.nan)
        return found

    def load(self, instances: Sequence[Instance]) -> list[HostKernel]:
        while absent := [instance for instance in instances if instance not in self.kernels]:
            neighbours = self.neighbours.get(absent[0], [one for one in absent if one not in self.neighbours])
            self.kernels.update((kernel.instance, kernel) for kernel in super().load(neighbours))
        return [self.kernels[instance] for instance in instances]


def table_target(*templates: KernelTemplate) -> Any:
    """Make a module's fixture: a `TableTarget` of some tables."""

    @pytest.fixture(scope="module")
    def target(request: pytest.FixtureRequest) -> TableTarget:
        return TableTarget(request.session, *templates)

    return target
