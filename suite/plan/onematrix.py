"""The sweep of one matrix that a command line stands for, without a file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spmark.datasets.sources.table import file_ending, own_file
from spmark.datasets.sweep.model import SCHEMA, Sweep
from spmark.datasets.sweep.reading import checked_sweep, parse_matrix
from spmark.impls.core.baseline import BASELINES
from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import DatasetError, SweepError
from spmark.impls.core.files import in_place_of_file, is_file
from spmark.impls.table import AUTO
from spmark.records.schema import CaseSpec

_WHERE = Path("--matrix")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class OneMatrix:
    """What a person asked for beside the device."""

    matrix: str
    widths: tuple[int, ...]
    ops: tuple[str, ...]
    dtypes: tuple[str, ...]
    implementations: tuple[str, ...]

    def sweep(self, kind: DeviceKind, overrides: Sequence[str] = ()) -> Sweep:
        """Give the sweep for a kind of device; relative paths begin at the current folder.

        Where no implementation is named, those of `AUTO` compete. The baseline of the kind of device is always among
        the implementations.

        Raises
        ------
        SweepError
            The matrix is neither a file nor SOURCE/NAME, an override is wrong, or something is named twice.
        """
        try:
            name = parse_matrix(self.matrix)["name"]
        except DatasetError as error:
            raise SweepError(f"{_WHERE}: {error}") from error
        baseline = BASELINES.get(kind)
        named = self.implementations or AUTO[kind]
        data = {
            "schema": SCHEMA,
            "name": _sweep_name(name),
            "title": self.matrix,
            "ops": list(self.ops or ("spmm",)),
            "matrices": [self.matrix],
            "widths": list(self.widths),
            "dtypes": list(self.dtypes or ("float32",)),
            "implementations": [*((baseline,) if baseline is not None and baseline not in named else ()), *named],
            "baseline": {} if baseline is None else {str(kind): baseline},
        }
        return checked_sweep(data, _WHERE, overrides)


def one_matrix(  # noqa: PLR0917
    sweep: str | None,
    matrix: str | None,
    widths: Sequence[int],
    ops: Sequence[str],
    dtypes: Sequence[str],
    implementations: Sequence[str],
) -> OneMatrix | None:
    """Give the matrix that a command line asks for; None where the line names a sweep.

    Raises
    ------
    SweepError
        The line names both or none, or has options that go with a matrix alone.
    """
    if (sweep is None) == (matrix is None):
        found = "neither" if sweep is None else f"both {sweep} and {matrix}"
        raise SweepError(f"run: expected a sweep (spmark list sweeps), or --matrix with --width, found {found}")
    if matrix is None:
        given = {"--width": widths, "--op": ops, "--dtype": dtypes, "--implementation": implementations}
        extra = [option for option, values in given.items() if values]
        if extra:
            raise SweepError(
                f"run {sweep}: expected {', '.join(extra)} beside --matrix alone, found a sweep; --set and --only say "
                "what a sweep runs"
            )
        return None
    if not widths:
        raise SweepError(f"{_WHERE} {matrix}: expected a width J, found none: add --width 64, for example")
    return OneMatrix(matrix, tuple(widths), tuple(map(str, ops)), tuple(map(str, dtypes)), tuple(implementations))


def refuse_unreadable(cases: Sequence[CaseSpec], *, read: bool) -> None:
    """Refuse the file of a command line's matrix before its cases run; a sweep goes on where one of its files is bad.

    Parameters
    ----------
    cases : sequence of CaseSpec
        Of the command line's matrix.
    read : bool
        Read the file, too; else it is enough that the file is there.

    Raises
    ------
    SweepError
        The file is missing.
    DatasetError, MatrixError
        The file cannot be read, or holds an illegal matrix.
    """
    for case in {case.matrix.id: case for case in cases}.values():
        if (file := own_file(case.matrix)) is None:
            continue
        if not is_file(file):
            raise SweepError(f"{_WHERE}: expected a file at {file.absolute()}, found {in_place_of_file(file)}")
        if read:
            from spmark.datasets.loading_child import load_in_child

            load_in_child(case.matrix, case.seed)


def _sweep_name(matrix: str) -> str:
    """Give the folder of the records for a matrix: its name without folders and ending."""
    bare = Path(matrix).name
    stem = bare[: len(bare) - len(file_ending(bare))]
    return _UNSAFE.sub("-", stem).strip("-._") or "matrix"
