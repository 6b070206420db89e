"""Which implementations can run where, without loading a matrix or starting a device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.enums import AnyOp, NetworkOp, Op, RelationalOp
from spmark.impls.core.errors import UnsupportedError, how_to_install
from spmark.impls.core.interfaces import Implementation
from spmark.impls.table import IMPLEMENTATIONS, create
from spmark.records.schema import RUNS_ON, CaseSpec

EXTRAS = {"cupy": "gpu", "cupyx": "gpu", "dgl": "dgl", "torch": "dgl"}
"""The extra of spmark that installs a module."""
ELSEWHERE: Mapping[DeviceKind, str] = {DeviceKind.CPU: "need a GPU", DeviceKind.CUDA: "run on the CPU alone"}
"""What is said of implementations that run on the other kind of device alone, whose reason begins with `RUNS_ON`."""
_PRODUCTS: Mapping[AnyOp, str] = {
    Op.SPMM: "SpMM", Op.SDDMM: "SDDMM", RelationalOp.RGMS: "RGMS", **{one: str(one) for one in NetworkOp}
}  # fmt: skip


def make(name: str, config: Mapping[str, Any]) -> Implementation | str:
    """Make an implementation, or say why this machine, or this version of spmark, cannot run it.

    Raises
    ------
    SweepError
        The name or the config is wrong: a mistake in the sweep and not in the machine.
    """
    try:
        return create(name, config)
    except UnsupportedError as error:
        return str(error)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "spmark":
            raise
        hint = f": {how_to_install(EXTRAS[missing])}" if missing in EXTRAS else ""
        return f"needs the package {missing}, which is not installed{hint}"
    except (ImportError, OSError) as error:  # a library that an extension module wants is missing
        return f"cannot be imported here: {error}"


def refusal(name: str, config: Mapping[str, Any], kind: DeviceKind, op: AnyOp) -> str | None:
    """Say why an implementation can run nothing of ``op`` on a kind of device, or None.

    Raises
    ------
    SweepError
        The name or the config is wrong.
    """
    made = make(name, config)
    if isinstance(made, str):
        return made
    if kind not in made.devices:
        return f"{RUNS_ON}{_words(made.devices)}, found a {kind} device"
    return None if op in made.ops else other_product(made.ops, op)


def refusals(cases: Iterable[CaseSpec], kind: DeviceKind) -> dict[str, str]:
    """Give the reason by case id for every case that cannot run on a kind of device.

    Raises
    ------
    SweepError
        A case's implementation, its config or its baseline is unknown, before anything has run.
    """
    reasons: dict[str, str] = {}
    known: dict[tuple[str, str, AnyOp], str | None] = {}
    for case in cases:
        if case.baseline is not None and case.baseline not in IMPLEMENTATIONS:
            create(case.baseline)
        key = (case.implementation, repr(sorted(case.config.items())), case.op)
        if key not in known:
            known[key] = refusal(case.implementation, case.config, kind, case.op)
        if reason := known[key]:
            reasons[case.case_id] = reason
    return reasons


def other_product(ops: Iterable[AnyOp], op: AnyOp) -> str:
    """Say that an implementation of ``ops`` does not compute ``op``."""
    return f"supports {_words(_PRODUCTS[own] for own in ops)} alone; {_PRODUCTS[op]} was asked for"


def _words(names: Iterable[str]) -> str:
    return " and ".join(sorted(names))
