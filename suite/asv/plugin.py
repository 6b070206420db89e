"""What ``asv.conf.json`` names: importing this file makes our environment, pages and choice of values known to asv."""

from __future__ import annotations

from spmark.suite.asv.environment import WheelEnvironment
from spmark.suite.asv.narrow import narrow
from spmark.suite.asv.publisher import Speedups, Vendored

__all__ = ["Speedups", "Vendored", "WheelEnvironment"]

narrow()
