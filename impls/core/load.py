"""The load that other processes put on a machine during a measurement, and when this load is too much."""

from __future__ import annotations

from dataclasses import dataclass

_MOST_SHARE = 0.1
_MOST_CORES = 0.5


@dataclass(frozen=True)
class Load:
    """The work of other processes; the asking process and its children do not count."""

    cores: int
    """Cores that the process may use."""
    free_cores: float | None
    """How many of these cores others left free on average; None where this is not known."""
    load_average: float | None = None
    """Load average of the last minute, own work included; None where the system does not say."""

    @property
    def taken_cores(self) -> float:
        """Cores that others took; 0 where this is not known."""
        return 0.0 if self.free_cores is None else max(0.0, self.cores - self.free_cores)

    @property
    def busy(self) -> bool:
        """Whether others took more than half a core and more than a tenth of the cores: times mean little then."""
        return self.taken_cores > max(_MOST_CORES, _MOST_SHARE * self.cores)

    def __str__(self) -> str:
        """Say in words how many cores others take."""
        return f"other processes take {self.taken_cores:.1f} of {self.cores} cores"
