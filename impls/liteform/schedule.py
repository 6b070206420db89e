"""How a composed format is run: loads, lanes and blocks by J, dtype and widest bucket, from a table of each GPU.

LiteForm tunes nothing at build time (Peng et al., HPDC 2025, section 5), so the schedule is looked up: the nearest
entry of the device's table, which is measured once, or a rule where there is no table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from math import log2
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from spmark.impls.core.errors import BuildError
from spmark.impls.core.problem import DType
from spmark.impls.kernels.ell_buckets import LANES, NEVER

_LEAST_WORK = 32
_LONG_ROWS = ((NEVER, NEVER), (32, NEVER), (NEVER, 64), (32, 128))
"""From what width a warp and a block share an ELL row, as they are tried."""


@dataclass(frozen=True)
class Schedule:
    """What `spmark.impls.kernels.ell_buckets.EllBucketsPlan` takes."""

    vector: int
    """Elements of a load."""
    lanes: int
    """Threads of a group, which takes one ELL row at a time."""
    work: int
    """Elements of A that a group takes before its block ends."""
    vectors: int = 1
    """Loads of a thread side by side."""
    spread: int = NEVER
    """Width from which all groups of a warp take an ELL row."""
    together: int = NEVER
    """Width from which a block takes ELL rows as a whole."""
    by_row: bool = False
    """Start blocks in the order of A's rows."""

    def arguments(self) -> dict[str, Any]:
        """Give them by name."""
        return asdict(self)


class Entry(BaseModel):
    """A schedule that was fastest under some conditions."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dtype: DType
    width: int
    max_width: int
    schedule: Schedule


class Table(BaseModel):
    """The schedules of one GPU."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    schema_version: Literal[1] = 1
    device: str
    entries: tuple[Entry, ...]
    made_with: str = ""
    """The command."""


def widest_vector(width: int, dtype: DType) -> int:
    """Give the elements of the widest load that every row of B is aligned for."""
    return next(v for v in (8, 4, 2, 1) if v * dtype.itemsize <= 16 and width % v == 0)


def schedule_for(device: str, width: int, dtype: DType, max_width: int) -> Schedule:
    """Look a schedule up.

    Parameters
    ----------
    device : str
        Name of the device spec.
    width : int
        J.
    max_width : int
        Widest bucket of the format.

    Returns
    -------
    Schedule
        Of the entry nearest in the logarithms of J and of the widest bucket whose loads fit J; without one, by
        `rule`.

    Raises
    ------
    BuildError
        The device's table cannot be read.
    """
    fitting = [entry for entry in _entries(device) if entry.dtype is dtype and width % entry.schedule.vector == 0]
    if not fitting:
        return rule(width, dtype, max_width)

    def distance(entry: Entry) -> tuple[float, float]:
        return abs(log2(entry.width / width)), abs(log2(entry.max_width / max_width))

    return min(fitting, key=distance).schedule


def rule(width: int, dtype: DType, max_width: int) -> Schedule:
    """Give a schedule without a table: widest loads, as many lanes as J needs, blocks of the widest bucket."""
    vector = widest_vector(width, dtype)
    lanes = next((n for n in sorted(LANES, reverse=True) if n * vector <= width), min(LANES))
    return Schedule(vector, lanes, max(_LEAST_WORK, max_width))


def candidates(width: int, dtype: DType, max_width: int) -> Iterator[Schedule]:
    """List the schedules that are measured for a table."""
    widest = widest_vector(width, dtype)
    tiles = [(v, n, 1) for v in sorted({widest, max(1, widest // 2)}) for n in LANES if v * n <= width]
    tiles += [(v, n, 2) for v, n, _ in tiles if v == widest and 2 * v * n <= width]
    for vector, lanes, vectors in tiles or [(widest, min(LANES), 1)]:
        for work in sorted({16, _LEAST_WORK, 64, max(_LEAST_WORK, max_width)}):
            for spread, together in _LONG_ROWS if max_width >= _LONG_ROWS[1][0] else _LONG_ROWS[:1]:
                yield Schedule(vector, lanes, work, vectors, spread, together)


@cache
def _entries(device: str) -> tuple[Entry, ...]:
    path = Path(str(files("spmark.impls.liteform"))) / "schedules" / f"{device}.json"
    return read_table(path).entries if path.is_file() else ()


def read_table(path: Path) -> Table:
    """Read a table.

    Raises
    ------
    BuildError
        It cannot be read, or is none.
    """
    try:
        return Table.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        raise BuildError(f"{path}: expected a table of schedules, found none that can be read: {error}") from error
