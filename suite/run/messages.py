"""What the runner and its child process say to each other: JSON messages over one socket, after a setup in a file.

JSON and not pickle, because a process that a kernel corrupted must not be able to make its parent execute anything.
"""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import Literal, NamedTuple, TypeVar

from pydantic import ConfigDict

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.untrusted import Frozen
from spmark.records.schema import CaseSpec, Outcome, SeenConfig
from spmark.suite.plan.options import Options

POISONED_EXIT = 86
"""Exit code of a child whose device no longer computes after a case."""
WAITING = "waiting"
"""Phase of a case while another process measures on its device; these seconds do not count towards a time limit."""
MessageType = TypeVar("MessageType", bound=Frozen)


class Result(NamedTuple):
    """What measuring a case gives."""

    outcome: Outcome
    seen: list[SeenConfig] = []
    """What the plan's search saw."""


class _Asked(Frozen):
    model_config = ConfigDict(ser_json_inf_nan="constants")  # a config or a limit may be infinite


class Setup(_Asked):
    """What a child measures on: the whole of its standard input."""

    device: DeviceSpec
    options: Options = Options()
    files: tuple[str, ...] = ()
    """Files (``/folder/mine.py:MyKernel``, ``/folder/mine.cu``) that the cases name, to be loaded first."""
    sparse_library: str = ""
    """The file of cuSPARSE that is loaded before these, so that it serves all; empty for none."""


class Request(_Asked):
    """A case to measure, or None to end."""

    case: CaseSpec | None


class Reply(Frozen):
    """A message of a child."""

    kind: Literal["ready", "phase", "result", "refused"]
    """``ready`` for the next case; ``refused``: the bench could not be made, or the device does not compute."""
    text: str = ""
    """Name of the phase, or why it was refused."""
    outcome: Outcome | None = None
    seen: list[SeenConfig] = []


def send(connection: Connection, message: Frozen) -> None:
    """Send one message; raises OSError when the other side is gone."""
    connection.send_bytes(message.model_dump_json().encode())


def receive(connection: Connection, kind: type[MessageType]) -> MessageType:
    """Receive one message; raises EOFError or OSError when the other side is gone, ValueError on any other bytes."""
    return kind.model_validate_json(connection.recv_bytes())
