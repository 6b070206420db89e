"""``spmark asv run``: airspeed velocity's ``run`` under the name that this machine has in every history."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from spmark.impls.core.errors import DeviceError, SweepError
from spmark.impls.core.extras import how_to_install

_CONFIGURATION = "asv.conf.json"


def run_asv(arguments: Sequence[str]) -> int:
    """Make this machine known to airspeed velocity, then run ``asv run`` under its name.

    Parameters
    ----------
    arguments : sequence of str
        For ``asv run``, as they are. Where they have ``--machine``, this machine is not registered.

    Returns
    -------
    int
        The exit code of airspeed velocity.

    Raises
    ------
    SweepError
        The working folder is not a checkout.
    DeviceError
        airspeed velocity is not installed.
    """
    if not Path(_CONFIGURATION).is_file():
        raise SweepError(f"expected a checkout as working folder, found no {_CONFIGURATION} in {Path.cwd()}")
    if find_spec("asv") is None:
        raise DeviceError(f"expected airspeed velocity, found none: make install, or {how_to_install('asv')}")
    machine = [] if any(argument.startswith(("--machine", "-m")) for argument in arguments) else _registered()
    return subprocess.run([sys.executable, "-m", "asv", "run", *machine, *arguments], check=False).returncode


def _registered() -> list[str]:
    """Make this machine known to airspeed velocity, and give the option that names it."""
    from spmark.impls.runtime.device import find
    from spmark.suite.asv.machine import FILE, machine_keys, register
    from spmark.suite.environment import collect

    keys = machine_keys(collect(find("auto")))
    register(keys, Path.home() / FILE)
    return [f"--machine={keys['machine']}"]
