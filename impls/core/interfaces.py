"""The contracts between an implementation, its plan, a cost model and the harness."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.problem import Problem

Config = dict[str, Any]
"""Values of an implementation's tunables by name: strings, numbers and booleans."""
DeviceArray = Any
"""An array on the plan's device: CuPy's, PyTorch's, NumPy's; core imports neither CuPy nor PyTorch."""
PHASES = ("features", "select", "search", "convert", "compile", "upload")
"""The phases of building; a plan reports seconds by these names (`Built.phase` takes them).

- ``features``: counting what a predictor looks at.
- ``select``: choosing among finished plans or formats. STile builds and times its plans here, all but the one that it
  keeps. LiteForm asks its models and samples for dense pieces. cuSPARSE asks the library for a buffer.
- ``search``: choosing a config. Where candidates are run to choose, building and timing them is part of the search.
- ``convert``: laying the matrix out in the chosen format.
- ``compile``: compiling, and loading the compiled code.
- ``upload``: copies to the device.
"""
CHOOSING_PHASES = ("features", "select", "search", "convert")
"""Phases that a plan spends on this one matrix, and that must pay off. Compiled kernels are kept on disk for the next
matrix, and every plan uploads."""


@dataclass(frozen=True)
class Candidate:
    """What a search learned of one config."""

    config: Config
    predicted: float | None = None
    """Score of the cost model, lower is better."""
    samples_us: tuple[float, ...] = ()
    """Measured times, empty where the config was only scored."""
    reason: str = ""
    """Why a config that should have been measured has no times."""


@dataclass(frozen=True)
class Search:
    """What a search cost and saw."""

    candidates: int
    """Configs considered."""
    compiled: int = 0
    measured: int = 0
    cores: int = 1
    """Host cores that worked on the search."""
    seen: tuple[Candidate, ...] = ()
    """Every config with what was predicted and measured, for replay without a GPU."""
    eligible: int = 0
    """Configs that an exhaustive search would measure; 0 where their number is not known."""
    compile_s: float = 0.0
    """Of the seconds of the phases search and select, those in which candidates were compiled; 0 where the plan does
    not tell them apart."""
    run_s: float = 0.0
    """Of the same seconds, those in which candidates were run; 0 likewise."""


@dataclass
class Plan:
    """A built, device-resident operator for one problem, and what it says about itself."""

    config: Config = field(default_factory=dict)
    """What was chosen."""
    phases_s: dict[str, float] = field(default_factory=dict)
    """Seconds by phase of building (`PHASES`)."""
    stored: int = 0
    """Elements that the plan's format holds, padding included."""
    device_bytes: int = 0
    """Bytes that the plan holds on the device, operands and result not counted."""
    search: Search | None = None
    """What the search cost, if there was one."""
    half_sums: bool = False
    """Whether partial sums are rounded to float16 or bfloat16, by a vendor's library or once by our own kernels."""
    deterministic: bool = True
    """Whether two runs on the same operands give the same bits."""
    order: NDArray[np.int32] | None = None
    """The order of SDDMM's result: the position in A's CSR order of each of its elements, (nnz,) int32.

    None stands for CSR order, the default. A plan that is asked for another order names it here and in its config.
    The array is on the host, and no time includes its use.
    """
    values: DeviceArray | None = None
    """A's values, or SDDMM's factors, as runs read them, with padding as zeros; None where they are held otherwise.

    Each element is one of A's values or 0, and which one depends on the pattern alone. New values may be written
    into the array between two runs.
    """
    values_in_order: bool = True
    """Whether `values` holds A's values in CSR order, and then padding."""

    def run(self, operands: Sequence[DeviceArray], out: DeviceArray) -> None:
        """Enqueue on the current stream: no allocation, no synchronisation, no host read.

        Parameters
        ----------
        operands : sequence of arrays
            Of `Problem.operand_shapes`, row-major and contiguous, of the problem's dtype, on the plan's device.
        out : array
            Of `Problem.out_shape`, in the plan's `order`; complete afterwards, whatever it contained before.

        Raises
        ------
        OperandError
            An operand does not fit; names the operand, what was expected and what was found.
        """
        raise NotImplementedError

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the seconds spent inside to the phase ``name`` of building (`PHASES`); a phase in itself counts once."""
        started, before = perf_counter(), self.phases_s.get(name, 0.0)
        try:
            yield
        finally:
            self.phases_s[name] = before + perf_counter() - started

    def charge(self, phases_s: Mapping[str, float]) -> None:
        """Add seconds to phases, also those spent before the plan existed."""
        for name, seconds in phases_s.items():
            self.phases_s[name] = self.phases_s.get(name, 0.0) + seconds


Built = Plan
"""A plan by the name that it has where it is an account of building, and nobody runs it."""


class Implementation(Protocol):
    """One way to compute an operator. Its fields, if it has any, are its pinned config."""

    name: ClassVar[str]
    """Key in sweeps, records and legends."""
    ops: ClassVar[frozenset[Any]]
    """Members of `spmark.impls.core.enums.Op`, whose problems are `Problem`s; or of `RelationalOp`, whose problems are
    `spmark.impls.core.relational.RelationalProblem`s."""
    devices: ClassVar[frozenset[DeviceKind]]
    # A class may also declare these:
    #   kernels: ClassVar[tuple[KernelTemplate, ...]]
    #                                            templates that plans launch (`spmark.impls.runtime.template`): the
    #                                            tests compile and run each
    #   needs: ClassVar[tuple[str, ...]]         modules that plain spmark does not bring, and
    #   extra: ClassVar[str]                     the extra of spmark that brings them
    #   literal_values: ClassVar[bool] = True    its plans hold A's values as literals of their code
    #   cost_models: ClassVar[Mapping[str, str]] the ``module:class`` of each `CostModel` by the model's name
    #   loops: ClassVar[tuple[str, ...]]         modules of loops that a build calls; a race imports them beforehand, so
    #                                            that they are compiled while other candidates are built
    # and have these methods:
    #   stored_as(problem, device, config)       the format that holds A in a plan of this config, made on the host, as
    #                                            `spmark.impls.formats.stores.held` takes it; by default CSR as it is
    #   forecast(problem, device)                a `spmark.impls.core.stores.Forecast` for a device that may be absent
    #   load(problem, device)                    build a plan that is not kept yet, then load it: it accounts for the
    #                                            loading alone. Raises UnsupportedError where none is kept
    #   ahead(problem)                           kernels (`spmark.impls.runtime.template.Instance`) that a build on a
    #                                            GPU asks for, or may ask for, the likeliest first: a race has them
    #                                            compiled while it works on other things

    def unsupported(self, problem: Any, device: DeviceSpec) -> str | None:
        """Say why the problem cannot be built on the device, or None."""

    def build(self, problem: Any, device: DeviceSpec) -> Plan:
        """Build a plan.

        Raises
        ------
        BuildError
            With the file, the template arguments and the log where a kernel is to blame.
        """


class CostModel(Protocol):
    """Orders configs of one implementation without building them; every predictor implements this protocol.

    An implementation names its cost models (`spmark.impls.table.cost_models`).

    Parameters
    ----------
    how : Implementation
        Whose configs are scored; its tunables count, such as the calibration that it asks for.
    device : DeviceSpec
        What the configs would run on; the device itself may be absent.
    """

    unit: ClassVar[str | None]
    """``"s"`` where scores are seconds, None where only their order means something."""

    def __init__(self, how: Any, device: DeviceSpec) -> None: ...

    def score(self, problem: Problem, configs: Sequence[Config]) -> NDArray[np.float64]:
        """Score every config, (len(configs),) float64; lower is better.

        A config may hold more than the model looks at. The score is NaN where the model knows nothing of a config.

        Raises
        ------
        SpmarkError
            The model needs data that are missing, or knows nothing of the problem.
        """
