"""What commands of ``spmark`` share: exit codes, options with their help, and what a shell offers for their values.

A shell waits for each answer after the tabulator key, so that nothing heavy is imported: names come from tables,
metadata and folders. No code of an installed distribution or of a file is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import IntEnum
from importlib.resources import files
from pathlib import Path
from typing import Annotated, get_args

import typer

from spmark.datasets.sources.table import FILES, source_names
from spmark.impls.core.enums import DeviceName, SweepOp
from spmark.impls.core.files import at_home
from spmark.impls.table import implementation_names

EXIT_CODES = (
    "Exit codes: 0 done; 1 a case failed (run --strict), something that a CPU run needs is missing (doctor), "
    "a check failed (check), a regression (compare), work is left after the budget (study label, collect, transfer), "
    "or asv failed (asv run); "
    "2 wrong usage, sweep or input; 3 the device, or a paper that cannot run yet (reproduce); 4 records or disk; "
    "130 interrupted (the same command goes on)."
)
_SWEEPS = (".yaml", ".yml")


class ExitCode(IntEnum):
    """What the process says to a script."""

    OK = 0
    FAILURES = 1
    USAGE = 2
    DEVICE = 3
    RECORDS = 4
    INTERRUPTED = 130


def sweeps(incomplete: str) -> list[str]:
    """Offer packaged sweeps, and YAML files."""
    return _begun(incomplete, (*_packaged("sweeps"), *_files(incomplete, _SWEEPS)))


def fetchable(incomplete: str) -> list[str]:
    """Offer sweeps, and what else can be fetched."""
    return [*_begun(incomplete, ["candidates", "models"]), *sweeps(incomplete)]


def papers(incomplete: str) -> list[str]:
    """Offer papers that ship with spmark, and YAML files."""
    return _begun(incomplete, (*_packaged("sweeps", "papers"), "all", *_files(incomplete, _SWEEPS)))


def implementations(incomplete: str) -> list[str]:
    """Offer implementations, those of installed distributions included."""
    return _begun(incomplete, implementation_names())


def matrices(incomplete: str) -> list[str]:
    """Offer sources, to be followed by a name, and files of matrices."""
    return _begun(incomplete, (*(f"{source}/" for source in source_names()), *_files(incomplete, tuple(FILES))))


def operators(incomplete: str) -> list[str]:
    """Offer operators."""
    return _begun(incomplete, get_args(SweepOp))


def _begun(incomplete: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]


def _packaged(*folders: str) -> Iterator[str]:
    """Give the names of YAML files that ship with the data sets."""
    folder = Path(str(files("spmark.datasets"))).joinpath(*folders)
    return (path.stem for path in sorted(folder.glob("*.yaml")))


def _files(incomplete: str, endings: tuple[str, ...]) -> Iterator[str]:
    """Give the folders and files beside what is typed, written as it is: ``./``, ``~/`` and all."""
    typed, slash, _ = incomplete.rpartition("/")
    with suppress(OSError):
        for path in sorted(at_home(typed + slash).iterdir()):
            if path.is_dir() and not path.name.startswith("."):
                yield f"{typed}{slash}{path.name}/"
            elif path.name.lower().endswith(endings):
                yield f"{typed}{slash}{path.name}"


DeviceOption = Annotated[
    DeviceName, typer.Option(help="auto: GPU 0 if a driver and CuPy are there, else the CPU. host-simt: results only.")
]
GpusOption = Annotated[
    str | None,
    typer.Option(metavar="all|0,2", help="Measure on several GPUs of this machine at a time, a process for each."),
]
SchedulerOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="Measure on the workers of a Dask scheduler, tls://HOST:PORT, that you have started."
    ),
]
ClusterOption = Annotated[
    Path | None,
    typer.Option(metavar="YAML", help="Measure on jobs of Slurm, or on hosts by SSH, that a file describes."),
]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILTER",
        help="Keep cases: [bold]key=value[/bold] (op, matrix, source, width, dtype, scaled, implementation, label; "
        "commas and * allowed), or a part or pattern of the case id. Repeat to narrow.",
    ),
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the sweep. Repeatable.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON on standard output, all else on the other.")]
