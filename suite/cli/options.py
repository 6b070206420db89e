"""What commands of ``spmark`` share: exit codes, choices and options with their help."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Annotated

import typer

EXIT_CODES = (
    "Exit codes: 0 done; 1 a case failed (run --strict), something that a CPU run needs is missing (doctor), "
    "a check failed (check), a regression (compare), work is left after the budget (label, collect, study), "
    "or asv failed (asv-run); "
    "2 wrong usage, sweep or input; 3 the device, or a paper that cannot run yet (reproduce); 4 records or disk; "
    "130 interrupted (the same command goes on)."
)


class ExitCode(IntEnum):
    """What the process says to a script."""

    OK = 0
    FAILURES = 1
    USAGE = 2
    DEVICE = 3
    RECORDS = 4
    INTERRUPTED = 130


class What(StrEnum):
    """What can be listed."""

    IMPLEMENTATIONS = "implementations"
    DATASETS = "datasets"
    SWEEPS = "sweeps"
    DEVICES = "devices"


class DeviceName(StrEnum):
    """What can be run on."""

    AUTO = "auto"
    CUDA = "cuda"
    CPU = "cpu"
    HOST_SIMT = "host-simt"


class OpName(StrEnum):
    """Operators of a sweep (`spmark.datasets.sweep.model.SweepOp`, not imported for the help)."""

    SPMM = "spmm"
    SDDMM = "sddmm"
    SDDMM_SCALED = "sddmm_scaled"


class DTypeName(StrEnum):
    """Types of operands and result (`spmark.impls.core.problem.DType`, not imported for the help)."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"


class StatusName(StrEnum):
    """How a recorded case may have ended (`spmark.impls.core.record.Status`, not imported for the help)."""

    OK = "ok"
    UNSUPPORTED = "unsupported"
    BUILD_ERROR = "build_error"
    RUN_ERROR = "run_error"
    WRONG_RESULT = "wrong_result"
    IMPLAUSIBLE = "implausible"
    OUT_OF_MEMORY = "out_of_memory"
    TIMEOUT = "timeout"


class FlushName(StrEnum):
    """How caches are emptied (`spmark.impls.core.record.Flush`, not imported for the help)."""

    WRITE = "write"
    READ = "read"


DeviceOption = Annotated[
    DeviceName, typer.Option(help="auto: GPU 0 if a driver and CuPy are there, else the CPU. host-simt: results only.")
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
