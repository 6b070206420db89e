"""How a composed format is run: loads, lanes and blocks by J, dtype, size and widest bucket, from a table of each GPU.

LiteForm tunes nothing at build time (Peng et al., HPDC 2025, section 5), so the schedule is looked up: the nearest
entry of the device's table, which is measured once, or a rule where there is no table. The table also says which widths
buckets may have and from where on the gathered order of rows pays. It holds the weights of the cost model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import log2
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PositiveInt

from spmark.impls.core.errors import BuildError
from spmark.impls.core.files import constants_file, path_component
from spmark.impls.core.problem import DType
from spmark.impls.core.untrusted import Frozen, parse_model, reading
from spmark.impls.kernels.ell_buckets import LANES, NEVER
from spmark.impls.liteform.cost import Weights
from spmark.impls.runtime.template import widest_aligned

_LEAST_WORK = 32
_LEAST_US, _BYTES_PER_US, _SLOTS_PER_US = 5.0, 6e6, 12.0
"""Time of the smallest product, bytes of B that a microsecond loads, and slots of an ELL row that one group takes in a
microsecond, on an H200; other GPUs take the same. A wide row of a small product is still being added up when all
others are done.

By the rows of schedules that ship, one group a row takes 1.26 times the least time at 8 to 16 slots of the widest
bucket a microsecond of the whole product, 1.9 times at 16 to 32, and 1.00 to 1.05 below (means). With each matrix
left out of the table's grid, schedules of buckets from 128 on take 1.074 times the least time with this limit, and
1.085 without."""


@dataclass(frozen=True)
class CellSchedule:
    """Arguments of `spmark.impls.kernels.ell_buckets.EllBucketsPlan`."""

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

    def canonical(self, max_width: int) -> CellSchedule:
        """Drop ``by_row`` and what buckets up to ``max_width`` never use: schedules that run alike become equal."""
        spread, together = (least if least <= max_width else NEVER for least in (self.spread, self.together))
        return replace(self, spread=spread, together=together, by_row=False)


class ScheduleEntry(Frozen):
    """A schedule that was fastest under some conditions."""

    dtype: DType
    width: PositiveInt
    """J."""
    gathered: bool = False
    """Whether rows that share columns stand together."""
    nnz: PositiveInt
    """Non-zeros of the matrix."""
    max_width: PositiveInt
    """Widest bucket."""
    schedule: CellSchedule


@dataclass(frozen=True)
class Gathering:
    """When rows that share columns are put together."""

    least_width: int
    """Least J, in float32: narrower rows of B are a line or two of a cache."""
    least_loads: int
    """Least number of loads of elements of B, nnz J."""
    most_share: float
    """Greatest share of rows of B that a block reads for the first time, over the same share in A's own order."""
    weights: Weights
    """Weights of the cost of bucket widths with gathered rows."""

    def asks(self, nnz: int, width: int, dtype: DType) -> bool:
        """Tell whether a problem is one for which the shares are looked at; rows of B count by their bytes."""
        width = width * dtype.itemsize // DType.FLOAT32.itemsize
        return width >= self.least_width and nnz * width >= self.least_loads


class ScheduleTable(Frozen):
    """Schedules, weights and bounds that were measured for one GPU."""

    schema_version: Literal[3] = 3
    device: str
    entries: tuple[ScheduleEntry, ...]
    weights: Weights | None = None
    """Weights of the cost of bucket widths; without them the cost is the paper's."""
    gathering: Gathering | None = None
    """Without it, rows stay in A's order."""
    thirds: bool = False
    """Whether the weights and entries are of buckets of 24, 48, 96, ... slots between the powers of two as well."""
    direct: tuple[Any, ...] = Field(default=(), exclude=True, repr=False)
    """Schedules of another kernel, in tables of before; nothing reads them."""
    made_with: str = ""
    """The command, and the measurements behind the table."""

    def weights_for(self, gathered: bool) -> Weights | None:
        """Give the weights for an order of rows; without weights of its own the gathered order takes A's."""
        return self.gathering.weights if gathered and self.gathering else self.weights


def schedule_for(
    device: str, width: int, dtype: DType, *, nnz: int, max_width: int, gathered: bool = False
) -> CellSchedule:
    """Look a schedule up.

    Parameters
    ----------
    device : str
        Name of the device spec.
    width : int
        J.
    nnz : int
        Non-zeros of the matrix: how much work the multiprocessors share.
    max_width : int
        Widest bucket of the format.
    gathered : bool
        Whether rows that share columns stand together.

    Returns
    -------
    CellSchedule
        That of the `nearest` entry of the dtype whose loads fit J and which shares wide rows in time. Where no entry
        fits, the schedule is the `rule`'s.

    Raises
    ------
    BuildError
        The device's table cannot be read.
    """
    dtype = dtype.measured_as
    table, own = table_for(device), rule(width, dtype, max_width)
    wanted = ScheduleEntry(
        dtype=dtype, width=width, gathered=gathered, nnz=max(nnz, 1), max_width=max_width, schedule=own
    )
    entries = table.entries if table else ()
    fitting = [entry for entry in entries if entry.dtype is dtype and width % entry.schedule.vector == 0]
    in_time = [entry for entry in fitting if _in_time(entry.schedule, wanted)]
    return nearest(in_time or fitting or [wanted], wanted).schedule


def _in_time(schedule: CellSchedule, wanted: ScheduleEntry) -> bool:
    """Tell whether a row of the widest bucket is done with all others: groups share it, or the product takes longer."""
    loads_us = wanted.nnz * wanted.width * wanted.dtype.itemsize / _BYTES_PER_US
    shared = min(schedule.spread, schedule.together) <= wanted.max_width
    return shared or wanted.max_width <= _SLOTS_PER_US * (_LEAST_US + loads_us)


def nearest(entries: Sequence[ScheduleEntry], wanted: ScheduleEntry) -> ScheduleEntry:
    """Give the entry of the same order of rows if there is one, nearest in the logarithms, J before all else."""

    def distance(entry: ScheduleEntry) -> tuple[bool, float, float]:
        apart = abs(log2(entry.nnz / wanted.nnz)) + abs(log2(entry.max_width / wanted.max_width))
        return entry.gathered is not wanted.gathered, abs(log2(entry.width / wanted.width)), apart

    return min(entries, key=distance)


def rule(width: int, dtype: DType, max_width: int) -> CellSchedule:
    """Give a schedule without a table: widest loads, as many lanes as J needs, blocks of the widest bucket."""
    vector = widest_aligned(width, dtype)
    lanes = next((n for n in sorted(LANES, reverse=True) if n * vector <= width), min(LANES))
    return CellSchedule(vector, lanes, max(_LEAST_WORK, max_width))


@cache
def table_for(device: str) -> ScheduleTable | None:
    """Give the table that ships for a device, else the one that ``spmark calibrate`` measured here, else None.

    Raises
    ------
    BuildError
        The table cannot be read.
    """
    paths = (shipped_table(device), constants_file("liteform", device))
    return next((read_table(path, device) for path in paths if path.is_file()), None)


def shipped_table(device: str) -> Path:
    """Give the path of the table that ships for a device of this name; it may not exist."""
    return Path(__file__).parent / "schedules" / f"{path_component(device)}.json"


def read_table(path: Path, device: str = "") -> ScheduleTable:
    """Read a table.

    Parameters
    ----------
    path : Path
    device : str
        Device that the table must belong to; by default any.

    Raises
    ------
    BuildError
        The file cannot be read, holds something else than a table, or belongs to another device.
    """
    with reading(path, "a table of schedules that can be read", BuildError):
        table = parse_model(ScheduleTable, path.read_bytes())
    if device and table.device != device:
        raise BuildError(
            f"{path}: expected the schedules of {device}, found those of {table.device}; "
            "measure them there: spmark study calibrate liteform"
        )
    return table
