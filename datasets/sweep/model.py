"""What a sweep asks for: matrices, widths, dtypes and implementations, which together make its cases.

A sweep is a YAML file, which `spmark.datasets.sweep.reading` reads; `expand` turns it into cases that the suite runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, Tag, field_validator, model_validator

from spmark.datasets.origins import find_origin, other_ids
from spmark.datasets.sources.table import source_names
from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.enums import AnyOp, NetworkOp, RelationalOp, SweepOp
from spmark.impls.core.errors import near, none_of
from spmark.impls.core.problem import DType, Op
from spmark.impls.core.untrusted import Frozen
from spmark.records.schema import CaseSpec, MatrixRef, MatrixSource

SCHEMA: Final = 1
Scalar = bool | int | float | str
Columns = Annotated[int, Field(ge=1, lt=2**31, strict=True)]


class Widths(Frozen):
    """The columns of RGMS's dense operands, or the two sizes of a network's step."""

    width_in: Columns
    """Of X; of a network as `spmark.impls.core.network.NetworkProblem` has it."""
    width_out: Columns
    """Of Y; of a network its ``width``."""

    def __str__(self) -> str:
        return f"{self.width_in}x{self.width_out}"


ONE, TWO = "one width", "two widths"
Width = Annotated[
    Annotated[Columns, Tag(ONE)] | Annotated[Widths, Tag(TWO)],
    Discriminator(lambda given: TWO if isinstance(given, dict | Widths) else ONE),
]
"""J; RGMS takes it for X and Y, or two widths."""


class _Written(Frozen):
    model_config = ConfigDict(populate_by_name=True)


class MatrixSpec(MatrixSource):
    """One matrix of a sweep."""

    widths: tuple[Width, ...] = ()
    """Widths J of this matrix where a layer fixes them; where empty, the sweep's widths."""

    @field_validator("source")
    @classmethod
    def _source_exists(cls, source: str) -> str:
        if source not in (known := source_names()):
            raise ValueError(none_of("a source", source, known))
        return source


class ImplementationSpec(_Written):
    """An implementation of a sweep, with the tunables that it pins."""

    name: str = Field(min_length=1)
    """A name, or a file, ``./mine.py:MyKernel`` or ``./mine.cu``, which only running the sweep loads."""
    config: dict[str, Any] = {}
    label: str = ""
    """The name in legends; by default the implementation's."""
    folder: str = ""
    """Where the path of a file begins: reading a sweep fills in the folder of the sweep's file."""

    @model_validator(mode="before")
    @classmethod
    def _bare_name(cls, data: Any) -> Any:
        data = {"name": data} if isinstance(data, str) else data
        return {**data, "label": data.get("label") or data.get("name", "")} if isinstance(data, dict) else data


def operator_of(op: SweepOp) -> tuple[AnyOp, bool]:
    """Give the operator that a sweep's word means, and whether SDDMM is scaled by A's values."""
    if op in tuple(NetworkOp):
        return NetworkOp(op), False
    return RelationalOp.RGMS if op == "rgms" else Op(op.partition("_")[0]), op == "sddmm_scaled"


def _one_per_kind(baseline: Any) -> Any:
    return (
        {kind.value: baseline for kind in (DeviceKind.CUDA, DeviceKind.CPU)} if isinstance(baseline, str) else baseline
    )


class Sweep(_Written):
    """A YAML sweep, checked. Made by `Sweep.load`."""

    schema_version: Literal[1] = Field(alias="schema")
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    """Folder of the records."""
    title: str = ""
    paper: str = ""
    """Whose figure this reproduces, if any."""
    figure: str = ""
    ops: tuple[SweepOp, ...] = Field(min_length=1)
    matrices: tuple[MatrixSpec, ...] = Field(min_length=1)
    widths: tuple[Width, ...] = ()
    """Widths J of every matrix without widths of its own."""
    dtypes: tuple[DType, ...] = Field(default=(DType.FLOAT32,), min_length=1)
    implementations: tuple[ImplementationSpec, ...] = Field(min_length=1)
    baseline: Annotated[dict[DeviceKind, str], BeforeValidator(_one_per_kind)] = {}
    """Implementation measured beside every case, by device kind; in YAML also one name for all kinds."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    time_limit_s: float = Field(default=600.0, gt=0, allow_inf_nan=False)
    """A case that takes longer is killed."""

    @classmethod
    def load(cls, path: str | Path, overrides: Sequence[str] = ()) -> Sweep:
        """Read a sweep file.

        Parameters
        ----------
        path : str or Path
            A YAML file, or the bare name of a packaged sweep such as ``quickstart``.
        overrides : sequence of str
            ``key=value``, applied last; the value is YAML and keys may be dotted (``baseline.cpu=scipy_cpu``).

        Raises
        ------
        SweepError
            Names the file, the key, what was expected, what was found and which known name may have been meant.
        """
        from spmark.datasets.sweep.reading import read_sweep

        return read_sweep(path, overrides)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for key, items in (("ops", self.ops), ("widths", self.widths), ("dtypes", self.dtypes)):
            _refuse_twice(key, [str(item) for item in items])
        _refuse_twice("matrices", [matrix.id for matrix in self.matrices])
        _refuse_twice("implementations: labels", [entry.label for entry in self.implementations])
        configs = [f"{one.name} {json.dumps(one.config, sort_keys=True, default=str)}" for one in self.implementations]
        _refuse_twice("implementations: name and config", configs)
        every = chain(self.widths, *(matrix.widths for matrix in self.matrices))
        pair = next((width for width in every if isinstance(width, Widths)), None)
        of_two = {"rgms", *NetworkOp}
        if pair is not None and not of_two.issuperset(self.ops):
            raise ValueError(
                f"widths: expected width_in and width_out in sweeps of rgms and of networks alone, found {pair}"
            )
        names = {entry.name for entry in self.implementations}
        borrowed = [one.label for one in self.implementations if one.label in names and one.label != one.name]
        if borrowed:
            raise ValueError(
                f"implementations: expected labels that name no other implementation here, found {borrowed[0]!r}"
            )
        bare = [matrix.id for matrix in self.matrices if not matrix.widths and not self.widths]
        if bare:
            raise ValueError(f"widths: expected at least one width J (for {bare[0]}, which states none), found none")
        plain = [entry.name for entry in self.implementations if not entry.config]
        for kind, name in self.baseline.items():
            if name not in plain:
                raise ValueError(
                    f"baseline.{kind}: expected one of the sweep's implementations without config "
                    f"({', '.join(plain) or 'there is none'}), found {name!r}; list it there, or name one of "
                    f"these{near(name, plain)}"
                )
        return self


def expand(sweep: Sweep, device_kind: DeviceKind) -> list[CaseSpec]:
    """List a sweep's cases on a kind of device.

    Returns
    -------
    list of CaseSpec
        By matrix, op, dtype, width, implementation, so that cases of one problem stand together, the baseline's own
        case first. On a kind of device for which the sweep names no baseline, cases have none.
    """
    baseline = sweep.baseline.get(device_kind)
    entries = sorted(sweep.implementations, key=lambda entry: bool(entry.config) or entry.name != baseline)
    return [
        CaseSpec(
            op=op,
            matrix=matrix,
            width=width_out,
            width_in=width_in,
            dtype=dtype,
            scaled=scaled,
            implementation=entry.name,
            config=entry.config,
            label=entry.label,
            seed=sweep.seed,
            time_limit_s=sweep.time_limit_s,
            baseline=baseline,
        )
        for matrix, op, scaled, dtype, width_in, width_out in _problems(sweep)
        for entry in entries
    ]


def _problems(sweep: Sweep) -> Iterator[tuple[MatrixRef, AnyOp, bool, DType, int, int]]:
    for matrix in sweep.matrices:
        origin = find_origin(matrix.source, matrix.name)
        known = {"origin": origin.url if origin else "", "aliases": tuple(other_ids(matrix))}
        ref = MatrixRef.model_validate(matrix.model_dump(exclude={"widths"}) | known)
        for op in sweep.ops:
            for dtype in sweep.dtypes:
                for width in matrix.widths or sweep.widths:
                    yield ref, *operator_of(op), dtype, *_columns(op, width)


def _columns(op: SweepOp, width: Width) -> tuple[int, int]:
    """Give the columns of X of RGMS, else 0, and J."""
    if isinstance(width, Widths):
        return width.width_in, width.width_out
    return width if op == "rgms" or op in tuple(NetworkOp) else 0, width


def _refuse_twice(key: str, items: Sequence[str]) -> None:
    seen: set[str] = set()
    for item in items:
        if item in seen:
            raise ValueError(f"{key}: expected each once, found {item} more than once")
        seen.add(item)
