"""Every implementation by name: the one line to add when a folder is added. Classes are imported on use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from typing import Any, cast

from spmark.impls.core.choices import none_of
from spmark.impls.core.errors import SweepError
from spmark.impls.core.interfaces import Implementation

IMPLEMENTATIONS: Mapping[str, str] = {
    "cusparse": "spmark.impls.cusparse.plan:CuSparse",
    "cusparse_best": "spmark.impls.cusparse.plan:CuSparseBest",
    "cusparse_bell": "spmark.impls.cusparse.plan:CuSparseBell",
    "cusparse_bsr": "spmark.impls.cusparse.plan:CuSparseBsr",
    "cublas": "spmark.impls.cublas.plan:CuBlas",
    "gespmm": "spmark.impls.gespmm.plan:GeSpmm",
    "rowsplit": "spmark.impls.rowsplit.plan:RowSplit",
    "nnzbalanced": "spmark.impls.nnzbalanced.plan:NnzBalanced",
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
}


def create(name: str, config: Mapping[str, Any] | None = None) -> Implementation:
    """Make the implementation ``name`` with its tunables pinned to ``config``.

    Raises
    ------
    SweepError
        The name or a tunable is unknown, or a value is illegal; lists what there is.
    """
    entry = IMPLEMENTATIONS.get(name) if isinstance(name, str) else None
    if entry is None:
        raise SweepError(none_of("an implementation", name, IMPLEMENTATIONS))
    if config is not None and not isinstance(config, Mapping):
        raise SweepError(f"implementation {name}: expected tunables as a mapping, found {config!r}")
    module, _, label = entry.partition(":")
    kind = getattr(import_module(module), label)
    known = [f.name for f in fields(kind)]
    unknown = sorted(map(str, set(config or {}) - set(known)))
    if unknown:
        has = ", ".join(known) or "none"
        raise SweepError(f"implementation {name}: expected tunables out of {has}, found {', '.join(unknown)}")
    try:
        return cast("Implementation", kind(**(config or {})))
    except (TypeError, ValueError) as error:
        raise SweepError(f"implementation {name}: {error}") from error


def package(name: str) -> str:
    """Give the folder under ``impls`` that holds the implementation ``name``."""
    return IMPLEMENTATIONS[name].split(":")[0].split(".")[2]
