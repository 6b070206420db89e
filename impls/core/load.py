"""What else a machine does while something is measured, and from when on that is too much."""

from __future__ import annotations

from dataclasses import dataclass

_MOST_SHARE = 0.1
_MOST_CORES = 0.5


@dataclass(frozen=True)
class Load:
    """The work of others, which is every process but the one that asks and its children."""

    cores: int
    """That the process may use."""
    free_cores: float | None
    """Of these, those that others left free on average; None where it is not known."""
    load_average: float | None = None
    """Of the last minute, own work included; None where the system does not say."""

    @property
    def taken_cores(self) -> float:
        """Cores that others took; 0 where it is not known."""
        return 0.0 if self.free_cores is None else max(0.0, self.cores - self.free_cores)

    @property
    def busy(self) -> bool:
        """Whether others took more than half a core and more than a tenth of the cores: times mean little then."""
        return self.taken_cores > max(_MOST_CORES, _MOST_SHARE * self.cores)

    def __str__(self) -> str:
        """Say it in words."""
        return f"other processes take {self.taken_cores:.1f} of {self.cores} cores"
