"""What `auto` chooses among: implementations of the table, each with a config, by operator and kind of device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spmark.impls.auto.features import Features
from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import UnsupportedError
from spmark.impls.core.interfaces import Config, Implementation
from spmark.impls.core.problem import Op, Problem
from spmark.impls.table import create


@dataclass(frozen=True)
class Choice:
    """An implementation with pinned tunables."""

    name: str
    config: Config = field(default_factory=dict, hash=False)

    def made(self) -> Implementation:
        """Make the implementation."""
        return create(self.name, self.config)

    def check(self, problem: Problem, device: DeviceSpec) -> Implementation:
        """Make the implementation for a problem.

        Raises
        ------
        UnsupportedError
            It refuses the problem, lacks the operator or the kind of device.
        """
        how = self.made()
        lacking = problem.op not in how.ops or device.kind not in how.devices
        reason = f"expected {problem.op} on {device.kind}" if lacking else how.unsupported(problem, device)
        if reason:
            raise UnsupportedError(f"{self.name}: {reason}")
        return how


CSR, CSR_SEARCHED = Choice("direct"), Choice("direct", {"search": True})
CELL = Choice("liteform", {"format": "cell"})
RUNS = Choice("sparsetir", {"tuned": False})
PORTFOLIO: Mapping[Op, Mapping[str, Choice]] = {
    Op.SPMM: {
        "direct": CSR,
        "direct searched": CSR_SEARCHED,
        "liteform cell": CELL,
        "sparsetir": Choice("sparsetir"),
        "stile": Choice("stile"),
        "cublas": Choice("cublas"),
    },
    Op.SDDMM: {
        "sparsetir untuned": RUNS,
        "sparsetir": Choice("sparsetir"),
        "stile": Choice("stile"),
    },
}
"""Candidates on a GPU, by the names that rows of times and models have. GE-SpMM, row splitting and balanced non-zeros
are none of them: hardly any row of the tuning half has them as the fastest. Nor is cuSPARSE, which every race measures.
"""
BASELINE = Choice("cusparse_best")
_UNEVEN = 16
"""Non-zeros of the longest row over those of a mean row, beyond which CELL is faster: the best on the tuning half
(`scripts/studies/auto_selector.py validate`)."""
_CPU = (Choice("scipy_cpu"), Choice("numba_cpu"))


def by_rule(op: Op, features: Features, kind: DeviceKind) -> tuple[Choice, ...]:
    """Choose without a measurement, in the order of preference; the first that takes the problem serves.

    SpMM: CSR as it comes, or CELL where the longest row is many times the mean one. SDDMM: runs of
    non-zeros with a row of X in registers.
    """
    if kind is DeviceKind.CPU:
        return _CPU
    if op is Op.SDDMM:
        return RUNS, Choice("rowsplit")
    uneven = features.longest > _UNEVEN * max(1.0, features.mean)
    return (CELL, CSR) if uneven else (CSR, CELL)
