"""What ``asv.conf.json`` names: importing this file makes our environment and our pages known to airspeed velocity."""

from __future__ import annotations

from spmark.suite.asv.environment import WheelEnvironment
from spmark.suite.asv.publisher import Speedups, Vendored

__all__ = ["Speedups", "Vendored", "WheelEnvironment"]
