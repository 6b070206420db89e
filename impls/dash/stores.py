"""The stores of a plan that DASH chose: those of the platform's own implementation."""

from __future__ import annotations

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Problem
from spmark.impls.core.stores import Stores
from spmark.impls.dash.plan import Dash
from spmark.impls.table import composition_of, create


class PlatformStores:
    """Of `Dash`: loop nests on a CPU, templates elsewhere."""

    def stores(self, how: Dash, problem: Problem, device: DeviceSpec, config: Config) -> Stores:
        """Convert as the platform's plan does."""
        name = "taco_cpu" if device.kind is DeviceKind.CPU else "sparsetir"
        return composition_of(name).stores(create(name), problem, device, config)
