"""``spmark asv-run``: airspeed velocity's ``run``, of the values that this machine can have."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from rich.markup import escape

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import DeviceError, SweepError
from spmark.impls.core.extras import how_to_install
from spmark.suite.commands.console import console, say

_CONFIGURATION = "asv.conf.json"


def run_asv(arguments: Sequence[str], only: Sequence[str]) -> int:
    """Say in one line which values are measured and why others cannot run here; then run ``asv run``.

    Parameters
    ----------
    arguments : sequence of str
        For ``asv run``, as they are. Without ``--machine``, this machine's name is registered and added.
    only : sequence of str
        Regular expressions of benchmarks, as airspeed velocity's ``--bench`` takes them.

    Returns
    -------
    int
        The exit code of airspeed velocity.

    Raises
    ------
    SweepError
        The working folder is not a checkout, or ``only`` leaves no value that can run here.
    DeviceError
        airspeed velocity is not installed.
    """
    if not Path(_CONFIGURATION).is_file():
        raise SweepError(f"expected a checkout as working folder, found no {_CONFIGURATION} in {Path.cwd()}")
    if find_spec("asv") is None:
        raise DeviceError(f"expected airspeed velocity, found none: make install, or {how_to_install('asv')}")
    from spmark.impls.runtime.device import cuda_missing, find
    from spmark.suite.asv.pick import pick, shown

    device = find("auto")
    picked = pick(device, only)
    here = f"{device.name} ({device.kind}; {cuda_missing()})" if device.kind is DeviceKind.CPU else device.name
    reasons = "; ".join(f"{', '.join(names)} ({why})" for why, names in picked.left_out.items())
    count = f"{picked.values:,} of the live set's {picked.total:,} values"
    say(console(False), escape(f"{here}: {count}; left out: {reasons or 'nothing'}"))
    machine = [] if any(argument.startswith(("--machine", "-m")) for argument in arguments) else _registered(device)
    command = [sys.executable, "-u", "-m", "asv", "run", *machine, *arguments]
    command += [f"--bench={pattern}" for pattern in picked.patterns]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in shown(process.stdout, picked):
            sys.stdout.write(line)
            sys.stdout.flush()
    return process.returncode


def _registered(device: DeviceSpec) -> list[str]:
    """Make this machine known to airspeed velocity, and give the option that names it."""
    from spmark.suite.asv.machine import FILE, machine_keys, register
    from spmark.suite.environment import collect

    keys = machine_keys(collect(device))
    register(keys, Path.home() / FILE)
    return [f"--machine={keys['machine']}"]
