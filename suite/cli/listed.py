"""What the packaged files of sweeps say, for pages: titles, first comments, and the cases that they list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import TYPE_CHECKING

from spmark.datasets.sweep.model import expand
from spmark.datasets.sweep.reading import packaged_sweeps, read_sweep
from spmark.impls.core.devicespec import DeviceKind

if TYPE_CHECKING:
    from spmark.report.site.model import ListedSweep


class PackagedSweeps(Mapping[str, "ListedSweep"]):
    """The packaged sweeps by name, each read when it is asked for."""

    def __init__(self) -> None:
        self._files = packaged_sweeps()

    def __getitem__(self, name: str) -> ListedSweep:
        """Read one; `KeyError` where no packaged sweep has the name."""
        from spmark.report.site.model import ListedSweep

        file = self._files[name]
        sweep = read_sweep(file)
        lines = takewhile(lambda line: line.startswith("#"), file.read_text(encoding="utf-8").splitlines())
        about = " ".join(line.lstrip("# ") for line in lines)
        # Which cases there are is the same on every kind of device.
        return ListedSweep(sweep.title, about, {case.case_id: case.label for case in expand(sweep, DeviceKind.CUDA)})

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)
