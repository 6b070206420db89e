"""Compiled operators in files: the matrix, the choices and the results of searches, behind a digest.

A file is a line that names the format, a line with the SHA-256 of all that follows, and an npz with the matrix's arrays
and JSON. It holds no code, and nothing of it is unpickled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, PositiveInt

from spmark import __version__
from spmark.impls.auto.race import Choice, Chosen
from spmark.impls.core.digest import implementation_version
from spmark.impls.core.errors import BuildError, DeviceError, SweepError
from spmark.impls.core.files import written
from spmark.impls.core.problem import MAX_NNZ
from spmark.impls.core.untrusted import Frozen, parse_model, reading
from spmark.impls.operator.choose import PLAIN, Asked, build, check_known, device_of
from spmark.impls.operator.compiled import CompiledOperator
from spmark.impls.operator.matrices import ElementType, OwnedMatrix
from spmark.impls.table import module_of

_MAGIC, _FORMAT = b"spmark compiled operator, format ", 3
_REMEDY = "compile the operator and save it again"
Size = Annotated[int, Field(ge=1, le=MAX_NNZ)]


class SavedPlan(Frozen):
    """The choice for one width."""

    width: PositiveInt
    choice: Choice
    version: str
    """Digest of the code that built the plan."""
    held: dict[str, bytes] = {}
    """Results of its searches (`spmark.impls.core.files.HELD`)."""


class SavedOperator(Frozen):
    """What a file holds beside the arrays."""

    spmark: str
    """Version of the package."""
    asked: Asked
    """A process that plans no other width need not know the implementations that it names."""
    dtype: ElementType
    shape: tuple[Size, Size]
    pattern: str
    """`Csr.hash`."""
    plans: list[SavedPlan]


def path_of(given: Any) -> Path:
    """Read the path of a file.

    Raises
    ------
    BuildError
        The argument is no path.
    """
    try:
        path = Path(given)
    except TypeError as error:
        raise BuildError(f"expected the path of a compiled operator's file, found {given!r}: pass a text") from error
    if "\0" in str(path):
        raise BuildError(f"expected the path of a compiled operator's file, found {given!r}, which no file can have")
    return path


def write(path: Path, matrix: OwnedMatrix, asked: Asked, planned: Mapping[int, Chosen]) -> None:
    """Write an operator into a file, whole or not at all.

    Raises
    ------
    BuildError
        The file cannot be written.
    """
    pattern = matrix.pattern
    facts = SavedOperator(
        spmark=__version__,
        asked=asked,
        dtype=matrix.dtype,
        shape=pattern.shape,
        pattern=pattern.hash,
        plans=[
            SavedPlan(width=width, choice=made.choice, version=_version(made.choice.name), held=dict(made.held))
            for width, made in planned.items()
        ],
    )
    content, text = BytesIO(), np.frombuffer(facts.model_dump_json().encode(), np.uint8)
    np.savez(content, facts=text, indptr=pattern.indptr, indices=pattern.indices, values=matrix.values)
    with written(path, BuildError) as part:
        part.write_bytes(sealed(content.getvalue()))


def sealed(content: bytes) -> bytes:
    """Put the name of the format and a digest before the content of a file."""
    digest = hashlib.sha256(content).hexdigest().encode()
    return _MAGIC + str(_FORMAT).encode() + b"\n" + digest + b"\n" + content


def read(path: Path) -> CompiledOperator:
    """Make the operator that a file holds, on this machine, without a search.

    Raises
    ------
    BuildError
        The file is missing, damaged, of something else, or was written by other code.
    DeviceError
        This machine has another device than the file was written for.
    """
    facts, matrix = parsed(path)
    of, device = facts.asked.device, device_of(facts.asked.device.kind)
    if (device.name, device.arch) != (of.name, of.arch):
        raise DeviceError(
            f"{path}: expected the device {of.name} ({of.arch}), found {device.name} ({device.arch}): "
            f"{_REMEDY} on this machine"
        )
    asked = replace(facts.asked, device=device)
    check_known((plan.choice.name for plan in facts.plans), f"{path}: ")
    for plan in facts.plans:
        name = plan.choice.name
        if _version(name) != plan.version:
            raise BuildError(
                f"{path}: expected the plan of {name} to be of this code, spmark {__version__}, found "
                f"one of other code, spmark {facts.spmark}: {_REMEDY}"
            )
    return CompiledOperator(matrix, asked, {plan.width: _rebuilt(plan, matrix, asked) for plan in facts.plans})


def parsed(path: Path) -> tuple[SavedOperator, OwnedMatrix]:
    """Read a file without looking at this machine: its facts, and the matrix.

    Raises
    ------
    BuildError, MatrixError
        The file is missing, damaged or of something else.
    """
    with reading(path, "a compiled operator", BuildError):
        first, _, rest = path.read_bytes().partition(b"\n")
        if not first.startswith(_MAGIC):
            raise BuildError(f"{path}: expected a compiled operator, found a file of something else")
        if first != _MAGIC + str(_FORMAT).encode():
            written = first.removeprefix(_MAGIC)[:20].decode(errors="replace")
            raise BuildError(f"{path}: expected format {_FORMAT}, found format {written!r}: {_REMEDY}")
        digest, _, rest = rest.partition(b"\n")
        if digest != hashlib.sha256(rest).hexdigest().encode():
            raise BuildError(f"{path}: expected content that fits its digest, found a damaged file: {_REMEDY}")
        with np.load(BytesIO(rest), allow_pickle=False) as file:
            facts = parse_model(SavedOperator, file["facts"].tobytes())
            indptr, indices, values = file["indptr"], file["indices"], file["values"]
        if values.dtype != facts.dtype.numpy:
            raise BuildError(f"{path}: expected values of {facts.dtype}, found {values.dtype}")
        matrix = OwnedMatrix.checked(facts.shape, indptr, indices, values, facts.dtype)
        if matrix.pattern.hash != facts.pattern:
            raise BuildError(f"{path}: expected the pattern {facts.pattern[:16]}, found {matrix.pattern.hash[:16]}")
        return facts, matrix


def _rebuilt(plan: SavedPlan, matrix: OwnedMatrix, asked: Asked) -> Chosen:
    problem = matrix.problem(asked.op, plan.width, asked.scaled)
    try:
        return build(problem, asked.device, plan.choice, plan.held)
    except SweepError as error:  # pinned tunables that this code does not have
        raise BuildError(f"the saved plan of J = {plan.width}: {error}: {_REMEDY}") from error


def _version(name: str) -> str:
    return implementation_version("spmark.impls.kernels.plain" if name == PLAIN else module_of(name))
