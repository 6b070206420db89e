"""Rows of collected samples: for one problem, the times of configs of one platform in two halves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from spmark.impls.core.errors import DatasetError
from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.core.untrusted import Frozen
from spmark.records.rowfile import read_rows
from spmark.studies.rows import Row

Microseconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class SampledConfig(Frozen):
    """A config with its samples, which alternate between two halves."""

    config: dict[str, Any]
    chosen_by_us: tuple[Microseconds, ...] = ()
    """Microseconds: the half that whoever chooses a config may look at."""
    valued_by_us: tuple[Microseconds, ...] = ()
    """Microseconds: the half that values the choice. A simulated time has no noise and is in both halves."""
    reason: str = ""
    """Why there are no samples."""

    @classmethod
    def of(cls, config: dict[str, Any], samples_us: Sequence[float], reason: str = "") -> SampledConfig:
        """Deal the samples out by turns; a single one goes to both halves."""
        samples = tuple(samples_us)
        return cls(config=config, chosen_by_us=samples[::2], valued_by_us=samples[1::2] or samples, reason=reason)

    @property
    def samples_us(self) -> tuple[float, ...]:
        """The samples of both halves; a simulated time, which is in both, once."""
        return self.chosen_by_us + (self.valued_by_us if self.valued_by_us != self.chosen_by_us else ())


class CollectedRow(Row):
    """All that was collected of one problem on one machine."""

    platform: str
    note: str
    """What the platform's times are."""
    op: Op
    matrix: str
    """The matrix's id in sweeps."""
    spec: dict[str, Any]
    """What loads the matrix: the entry of the sweep."""
    width: int
    dtype: DType
    space_digest: str
    version: str
    """Of the code that the times depend on."""
    machine: str
    """The device's name, or ``simulated``."""
    cores: tuple[int, ...] = ()
    """Cores of the host that the process was pinned to."""
    wanted: int
    """Configs that were to have samples, beside the default; others stand among them with their reasons."""
    pattern_sha256: str = ""
    """`Csr.hash`; empty where the matrix is missing."""
    configs: tuple[SampledConfig, ...] = ()
    """The platform's default first, then the drawn configs in the order of drawing."""
    reason: str = ""
    """Why there are no configs."""

    @property
    def timed(self) -> list[SampledConfig]:
        """The configs that have samples, in their order."""
        return [one for one in self.configs if one.chosen_by_us]

    @property
    def halves_us(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Medians of the timed configs, (n,) microseconds: of the half that chooses, and of the half that values."""
        halves = ([one.chosen_by_us for one in self.timed], [one.valued_by_us for one in self.timed])
        chosen_by, valued_by = (np.array([np.median(samples) for samples in half]) for half in halves)
        return chosen_by, valued_by

    def problem(self, matrix: Csr) -> Problem:
        """Give the problem that was measured.

        Raises
        ------
        DatasetError
            The matrix is another one than that of the row.
        """
        if matrix.hash != self.pattern_sha256:
            raise DatasetError(
                f"{self.matrix}: expected the pattern {self.pattern_sha256[:16]}, found "
                f"{matrix.hash[:16]}: the matrix has changed since its configs were collected"
            )
        return Problem(self.op, matrix, self.width, self.dtype)


def read_collected(files: Iterable[Path], op: Op | None = None) -> list[CollectedRow]:
    """Read the rows with configs, in the order of the files.

    Parameters
    ----------
    files : iterable of Path
    op : Op, optional
        Rows of other operators are left out.

    Raises
    ------
    DatasetError
        Rows are of several platforms, machines, numbers of cores or versions of a space.
    RecordError
        A file cannot be read.
    """
    rows = [row for file in files for row in read_rows(file, CollectedRow)]
    found = [row for row in rows if row.configs and op in (None, row.op)]
    machines = {(row.platform, row.machine, len(row.cores)) for row in found}
    spaces = {(row.op, row.space_digest) for row in found}
    if len(machines) > 1 or len(spaces) > len({op for op, _ in spaces}):
        listed = ", ".join(str(one) for one in sorted([*machines, *spaces], key=str))
        raise DatasetError(
            f"expected samples of one platform and machine, of one space for each operator, found {listed}"
        )
    return found
