"""Every implementation by name: a new folder needs one line here. Classes are imported on use."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from spmark.impls.core.choices import none_of
from spmark.impls.core.errors import SweepError, UnsupportedError

if TYPE_CHECKING:
    from spmark.impls.core.devicespec import DeviceSpec
    from spmark.impls.core.interfaces import CostModel, Implementation
    from spmark.impls.core.problem import Problem

IMPLEMENTATIONS: Mapping[str, str] = {
    "cusparse": "spmark.impls.cusparse.plan:CuSparse",
    "cusparse_best": "spmark.impls.cusparse.plan:CuSparseBest",
    "cusparse_bell": "spmark.impls.cusparse.plan:CuSparseBell",
    "cusparse_bsr": "spmark.impls.cusparse.plan:CuSparseBsr",
    "cublas": "spmark.impls.cublas.plan:CuBlas",
    "cublaslt_best": "spmark.impls.cublas.plan:CuBlasLtBest",
    "gespmm": "spmark.impls.gespmm.plan:GeSpmm",
    "rowsplit": "spmark.impls.rowsplit.plan:RowSplit",
    "nnzbalanced": "spmark.impls.nnzbalanced.plan:NnzBalanced",
    "dgsparse": "spmark.impls.dgsparse.plan:DgSparse",
    "featgraph": "spmark.impls.featgraph.plan:FeatGraph",
    "direct": "spmark.impls.direct.plan:Direct",
    "sparsetir": "spmark.impls.sparsetir.plan:SparseTir",
    "sparsetir_bsr": "spmark.impls.sparsetir.blocks:SparseTirBsr",
    "sparsetir_dbsr": "spmark.impls.sparsetir.blocks:SparseTirDbsr",
    "sparsetir_srbcrs": "spmark.impls.sparsetir.blocks:SparseTirSrBcrs",
    "sparsetir_nohyb": "spmark.impls.sparsetir.nohyb:SparseTirNoHyb",
    "sparsetir_composed": "spmark.impls.sparsetir.composed:SparseTirComposed",
    "liteform": "spmark.impls.liteform.plan:LiteForm",
    "stile": "spmark.impls.stile.plan:Stile",
    "lo_spmm": "spmark.impls.lo_spmm.plan:LoSpmm",
    "triton_blocksparse": "spmark.impls.triton_blocksparse.plan:TritonBlockSparse",
    "dgl": "spmark.impls.dgl.plan:Dgl",
    "scipy_cpu": "spmark.impls.scipy_cpu.plan:ScipyCpu",
    "numba_cpu": "spmark.impls.numba_cpu.plan:NumbaCpu",
    "blas_cpu": "spmark.impls.blas_cpu.plan:BlasCpu",
    "taco_cpu": "spmark.impls.taco_cpu.plan:TacoCpu",
}
SEARCHES: Mapping[str, str] = {
    "stile_a100": "spmark.impls.stile.absent:a100",
    "liteform_build_h200": "spmark.impls.liteform.absent:build_h200",
    "liteform_h200": "spmark.impls.liteform.absent:buckets_h200",
}
"""Searches for a GPU that may be absent, by the names that regression tracking asks for. Each is a function of a
problem, imported on use, and gives the predicted seconds of the chosen config, or None."""
SWITCHES = ("anew", "again")
"""Keys of a config that say how a build is measured, and nothing of its plan: ``anew`` builds, on a GPU, as if nothing
had been built before; ``again`` measures what loading a kept plan costs (`spmark.impls.core.interfaces.KeepsPlans`)."""
BASELINES: Mapping[str, str] = {"cuda": "cusparse_best", "cpu": "scipy_cpu"}
"""The default baseline of speed-ups, by the kind of device."""
AUTO: Mapping[str, tuple[str, ...]] = {
    "cuda": ("direct", "rowsplit", "sparsetir", "cusparse_best"),
    "cpu": ("scipy_cpu", "numba_cpu"),
    "host-simt": ("direct", "rowsplit"),
}
"""What competes where a person names no implementation, by the kind of device. The first that takes a problem serves a
product that is computed once, so those without a search stand first."""
LITERAL_VALUES = frozenset({"lo_spmm"})
"""Implementations whose plans hold A's values as literals of their code."""
CONTRACTS: Mapping[str, Mapping[str, str]] = {
    "labels": {
        "liteform": "spmark.impls.liteform.study.commands:FormatLabels",
        "lo_spmm": "spmark.impls.lo_spmm.study.commands:KernelLabels",
    },
    "predictors": {
        "liteform": "spmark.impls.liteform.study.commands:ForestTraining",
        "lo_spmm": "spmark.impls.lo_spmm.study.commands:RankTraining",
    },
    "transfer": {"dash": "spmark.impls.dash.study.commands:TransferTraining"},
    "published labels": {"liteform": "spmark.impls.liteform.study.commands:PublishedLabels"},
    "calibration": {"stile": "spmark.impls.stile.study.commands:TileCalibration"},
}
"""What implementations offer beside plans, by the contracts of `spmark.impls.core.contracts`; imported on use."""

PLATFORMS: Mapping[str, str] = {
    "cpu": "spmark.impls.taco_cpu.platform:CpuPlatform",
    "cuda": "spmark.impls.sparsetir.platform:CudaPlatform",
    "spade_sim": "spmark.impls.spade_sim.platform:SpadePlatform",
}
"""What configs are collected on (`spmark.impls.tuning.platform.Platform`); imported on use."""
RENAMED_TUNABLES: Mapping[str, Mapping[str, str]] = {}
"""Today's name of renamed tunables by the old one, for each implementation: a recorded config can be built for ever."""


def create(name: str, config: Mapping[str, Any] | None = None) -> Implementation:
    """Make the implementation ``name`` with its tunables pinned to ``config``, whose `SWITCHES` are left out.

    Raises
    ------
    SweepError
        The name or a tunable is unknown, or a value is illegal; lists the known names.
    """
    entry = IMPLEMENTATIONS.get(name) if isinstance(name, str) else None
    if entry is None:
        raise SweepError(none_of("an implementation", name, IMPLEMENTATIONS))
    if config is not None and not isinstance(config, Mapping):
        raise SweepError(f"implementation {name}: expected tunables as a mapping, found {config!r}")
    kind = _imported(entry)
    known = [f.name for f in fields(kind)]
    config = _current(name, config or {})
    switches = {key: value for key, value in config.items() if key in SWITCHES}
    tunables = {key: value for key, value in config.items() if key not in SWITCHES}
    unknown = sorted(map(str, set(tunables) - set(known)))
    if unknown:
        has = ", ".join(known) or "none"
        raise SweepError(f"implementation {name}: expected tunables out of {has}, found {', '.join(unknown)}")
    for key, value in switches.items():
        if not isinstance(value, bool):
            raise SweepError(f"implementation {name}: expected {key} to be true or false, found {value!r}")
    if switches.get("again") and not hasattr(kind, "load"):
        raise SweepError(
            f"implementation {name}: expected kept plans, which the key again loads, found none: leave the key out"
        )
    try:
        return cast("Implementation", kind(**tunables))
    except (TypeError, ValueError) as error:
        raise SweepError(f"implementation {name}: {error}") from error


def _current(name: str, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Replace old names of tunables by today's."""
    renamed = RENAMED_TUNABLES.get(name, {})
    for old in renamed.keys() & config.keys():
        warnings.warn(f"{name}: the tunable {old} is called {renamed[old]}", DeprecationWarning, stacklevel=3)
    return {renamed.get(key, key): value for key, value in config.items()}


def cost_models(name: str) -> Mapping[str, str]:
    """Give the cost models of the implementation ``name``: the ``module:class`` of each by the model's name."""
    models: Mapping[str, str] = getattr(_imported(IMPLEMENTATIONS[name]), "cost_models", {})
    return models


def cost_model(how: Implementation, model: str, device: DeviceSpec) -> CostModel:
    """Make the cost model ``model`` of an implementation for a device.

    Raises
    ------
    SweepError
        The implementation has no such model; lists its models.
    """
    known = cost_models(how.name)
    if model not in known:
        has = ", ".join(known) or "none"
        raise SweepError(f"implementation {how.name}: expected a cost model out of {has}, found {model!r}")
    return cast("CostModel", _imported(known[model])(how, device))


def search_for_absent(name: str) -> Callable[[Problem], float | None]:
    """Import the search ``name`` of `SEARCHES`.

    Raises
    ------
    UnsupportedError
        There is no such search; lists all searches.
    """
    if name not in SEARCHES:
        raise UnsupportedError(f"expected a search out of {', '.join(SEARCHES)}, found {name!r}")
    return cast("Callable[[Problem], float | None]", _imported(SEARCHES[name]))


def find_contract(contract: str, name: str) -> Any:
    """Import what the implementation ``name`` offers by ``contract``, a key of `CONTRACTS`.

    Raises
    ------
    SweepError
        The implementation does not offer it; lists the implementations that do.
    """
    entry = CONTRACTS[contract].get(name)
    if entry is None:
        raise SweepError(none_of(f"a method with {contract}", name, CONTRACTS[contract]))
    return _imported(entry)()


def find_platform(name: str) -> Any:
    """Import and make the platform ``name`` of `PLATFORMS`.

    Raises
    ------
    SweepError
        There is no such platform; lists all platforms.
    """
    if name not in PLATFORMS:
        raise SweepError(none_of("a platform", name, PLATFORMS))
    return _imported(PLATFORMS[name])()


def platform_of(implementation: str) -> Any:
    """Give the platform whose configs an implementation builds.

    Raises
    ------
    SweepError
        No platform has its configs.
    """
    for name, entry in PLATFORMS.items():
        if entry.startswith(f"spmark.impls.{package(implementation)}."):
            return find_platform(name)
    raise SweepError(f"implementation {implementation}: expected a platform that has its configs, found none")


def _imported(entry: str) -> Any:
    """Import the object that an entry of the form ``module:name`` names."""
    module, _, label = entry.partition(":")
    return getattr(import_module(module), label)


def package(name: str) -> str:
    """Give the folder under ``impls`` that holds the implementation ``name``."""
    return IMPLEMENTATIONS[name].split(":")[0].split(".")[2]
