"""Which implementations can be used here, asked in a process of its own: ``python -P -m spmark.suite.cli.usable``.

Standard input holds the devices, standard output what each implementation answers, both as JSON. In that process Numba
compiles nothing: an examination asks and does not compute, and the loops of a fresh checkout take half a minute.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.table import IMPLEMENTATIONS

Answers = dict[str, tuple[list[str], str]]
"""By implementation: the kinds of devices that it is usable on, and why on none."""
_LIMIT_S = 300.0


class Asking:
    """The questions, under way since this was made.

    Parameters
    ----------
    devices : sequence of DeviceSpec
        Those that are here.
    """

    def __init__(self, devices: Sequence[DeviceSpec]) -> None:
        self._given = "\n".join(device.model_dump_json() for device in devices)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "spmark.suite.cli.usable"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        )

    def answers(self) -> Answers:
        """Wait for the answers; if the process ended at an implementation, this end is the answer."""
        try:
            out, err = self._process.communicate(self._given, _LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            out, err = self._process.communicate()
        lines = [json.loads(line) for line in out.splitlines() if line.endswith("]")]
        told: Answers = {name: (kinds, reason) for name, kinds, reason in lines}
        last = (err.strip().splitlines() or ["no message"])[-1]
        gone = f"could not be asked: the process that asks ended with code {self._process.returncode}: {last}"
        return {name: told.get(name, ([], gone)) for name in IMPLEMENTATIONS}


def main() -> None:
    """Answer a line for each implementation as soon as it is known."""
    from spmark.suite.plan.refusals import usable

    devices = [DeviceSpec.model_validate_json(line) for line in sys.stdin]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # text that a library prints is not an answer
    for name in IMPLEMENTATIONS:
        answers.write(json.dumps([name, *usable(name, devices)]) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
