"""The name of a machine for airspeed velocity: GPU model and CUDA major, on which alone a history depends here.

``python -m spmark.suite.asv.machine`` writes this machine's keys to where ``asv run --machine`` finds them. Machine
keys are part of a history's identity: a driver, a host's memory or a kernel version among the keys would start a new
history at each update. Records hold these facts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import RecordError
from spmark.impls.core.files import path_component
from spmark.impls.core.untrusted import parse_json
from spmark.impls.runtime.device import find
from spmark.records.schema import Environment
from spmark.suite.environment import collect

FILE = ".asv-machine.json"
"""In the home folder: machines that airspeed velocity knows."""
_LAYOUT = 1


def machine_keys(environment: Environment) -> dict[str, str]:
    """Give the keys of a machine.

    Returns
    -------
    dict
        ``machine``, such as ``nvidia-h200-cuda13``; ``gpu`` and ``cuda``, empty where the device is a CPU.
    """
    device = environment.device
    if device.kind is not DeviceKind.CUDA:
        return {"machine": path_component(device.name), "gpu": "", "cuda": ""}
    major = environment.cuda.partition(".")[0]
    return {"machine": path_component(f"{device.name}-cuda{major}"), "gpu": device.name, "cuda": major}


def register(keys: dict[str, str], path: Path) -> None:
    """Add a machine to the file of machines, or replace its keys.

    Raises
    ------
    RecordError
        The file exists and is not airspeed velocity's.
    """
    known: dict[str, Any] = {"version": _LAYOUT}
    try:
        if path.exists():
            known |= parse_json(path.read_bytes())
        known[keys["machine"]] = keys
        path.write_text(json.dumps(known, indent=4) + "\n", encoding="utf-8")
    except (OSError, ValueError, TypeError) as error:
        raise RecordError(
            f"{path}: expected a file of machines of airspeed velocity: {error}; mend or delete it"
        ) from error


def register_here() -> str:
    """Make this machine known to airspeed velocity, and give its name."""
    keys = machine_keys(collect(find("auto")))
    register(keys, Path.home() / FILE)
    return keys["machine"]


if __name__ == "__main__":
    typer.echo(register_here())
