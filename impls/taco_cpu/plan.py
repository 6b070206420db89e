"""SpMM and SDDMM as generated C loop nests in the manner of TACO, on the host's cores.

A config names the loop order, the splits and A's level formats (`spmark.impls.taco_cpu.space`). Loop order and formats
make a C function (`generate`), which is compiled once. A is stored in the formats (`storage`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Config, Plan
from spmark.impls.core.machine import allowed_cores
from spmark.impls.core.operands import HostPlan
from spmark.impls.core.problem import Op, Problem
from spmark.impls.core.stores import Held, StoreKind
from spmark.impls.runtime.clibrary import load_c
from spmark.impls.runtime.toolchain import gcc_missing
from spmark.impls.taco_cpu.generate import SIZES, arrays_of, generate
from spmark.impls.taco_cpu.space import CSR, nest_of, why_illegal
from spmark.impls.taco_cpu.storage import MOST_BYTES, store


@dataclass(frozen=True)
class TacoCpu:
    """A loop nest of TACO's kind; by default the system's own, CSR with rows in parallel.

    Raises
    ------
    ValueError
        A tunable has an illegal value; says which and why.
    """

    name: ClassVar[str] = "taco_cpu"
    ops: ClassVar[frozenset[Op]] = frozenset(Op)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CPU})
    retired: ClassVar[Mapping[str, Any]] = {"candidates": 0, "seed": 0, "threads": 0, "most_bytes": MOST_BYTES}
    cost_models: ClassVar[Mapping[str, str]] = {"dash": "spmark.impls.dash.cost_models:TransferredScores"}

    isplit: int = CSR["isplit"]
    """Iterations of the loop i0, a power of two."""
    ksplit: int = CSR["ksplit"]
    """Iterations of the loop k0, a power of two."""
    jsplit: int = CSR["jsplit"]
    """Iterations of the loop j0, a power of two; 1 leaves j whole."""
    order: str = CSR["order"]
    """The loops, outermost first."""
    formats: str = CSR["formats"]
    """A letter for each of the levels i1, i0, k1 and k0: C compressed, U uncompressed."""
    chunk: int = CSR["chunk"]
    """Iterations of the parallel loop that a thread takes at a time, a power of two."""

    def __post_init__(self) -> None:
        if reason := why_illegal(None, self._config):
            raise ValueError(reason)

    @property
    def _config(self) -> Config:
        """The point of the space that the tunables name."""
        return {name: getattr(self, name) for name in CSR}

    def stored_as(self, problem: Problem, device: DeviceSpec, config: Config) -> list[Held]:
        """Store A level by level, as a plan does: rows where no level pads, else blocks of the uncompressed levels."""
        stored = store(problem.matrix, nest_of(problem.op, config), config)["values"].size
        kind = StoreKind.ROW if stored == problem.matrix.nnz else StoreKind.BLOCK
        return [Held(kind, f"levels {config['formats']}", stored)]

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse a loop nest that the operator does not have, and a machine without a compiler."""
        return why_illegal(problem.op, self._config) or gcc_missing()

    def build(self, problem: Problem, device: DeviceSpec) -> Plan:
        """Generate, compile and convert.

        Raises
        ------
        BuildError
            An uncompressed level would take more than `MOST_BYTES`.
        CompileError
            The generated C does not compile.
        DeviceError
            g++ is not installed.
        """
        return TacoPlan(problem, self._config)


class TacoPlan(HostPlan):
    """One loop nest for one problem.

    Parameters
    ----------
    problem : Problem
    config : mapping
        A legal config of the operator's space.
    """

    def __init__(self, problem: Problem, config: Mapping[str, Any]) -> None:
        threads = len(allowed_cores())
        super().__init__(config={**config, "threads": threads})
        nest = nest_of(problem.op, config)
        with self.phase("convert"):
            values = problem.dtype.numbers(problem.values).astype(np.float32, copy=False)
            arrays: dict[str, Any] = dict(store(replace(problem.matrix, values=values), nest, config))
        with self.phase("compile"):
            self._function = getattr(load_c(generate(nest), nest.name), nest.name)
        self.stored = arrays["values"].size
        arrays["scale"] = arrays["values"] if problem.scaled else None
        num_rows, num_cols = problem.matrix.shape
        sizes = {**config, "threads": threads, "num_rows": num_rows, "num_cols": num_cols, "width": problem.width}
        passed = [arrays[name] for name in arrays_of(nest) if name in arrays]
        self._held = [array for array in passed if array is not None]
        addresses = [ctypes.c_void_p(None if array is None else array.ctypes.data) for array in passed]
        self._arguments = [*(ctypes.c_int64(sizes[name]) for name in SIZES), *addresses]
        self.hold(problem, *self._held)

    def compute(self, *arrays: NDArray[np.float32]) -> None:
        """Compute C = A B, or D."""
        self._function(*self._arguments, *(ctypes.c_void_p(array.ctypes.data) for array in arrays))
