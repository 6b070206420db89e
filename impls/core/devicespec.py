"""What a target is, as pure data.

A search or a prediction takes a `DeviceSpec`, not a device, and so runs anywhere for any calibrated GPU. Specs of known
GPUs ship as JSON beside the runtime; ``spmark calibrate`` writes new ones.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import Field

from spmark.impls.core.enums import DeviceKind as DeviceKind  # noqa: PLC0414 - is part of this module, too
from spmark.impls.core.enums import DType
from spmark.impls.core.errors import DeviceError
from spmark.impls.core.untrusted import Frozen, parse_model, reading

_ARCH = re.compile(r"sm_(\d{1,4})a?")


Whole = Annotated[int, Field(gt=-(2**63) - 1, lt=2**63)]  # a field may have a ge of its own
"""A whole number that arrays can hold."""


Rates = dict[Annotated[int, Field(ge=1, lt=2**63)], Annotated[float, Field(gt=0, allow_inf_nan=False)]]
"""Bytes a second by a number of bytes."""


BUSY = "busy"
"""Key of `DeviceSpec.calibrated_with` that says why rates may be too low: such rates are no floor of times."""


class DeviceSpec(Frozen):
    """A target of building and predicting. Rates are measured by `calibrate`, the rest is queried."""

    name: str
    """Model name in lower case with dashes, such as ``nvidia-h200``: the folder of its records."""
    kind: DeviceKind
    arch: str
    """``sm_90`` for a GPU, the machine type (``x86_64``) for a CPU."""
    num_sms: Whole = Field(ge=1)
    """Streaming multiprocessors, or cores."""
    warp_size: Whole = 32
    max_threads_per_sm: Whole = 2048
    registers_per_sm: Whole = 65536
    """32-bit registers."""
    shared_bytes_per_sm: Whole = 0
    shared_bytes_per_block: Whole = 0
    """Most dynamic shared memory of one thread block, after opting in."""
    l2_bytes: Whole = Field(ge=0)
    """L2 of a GPU, last-level cache of a CPU."""
    memory_bytes: Whole = Field(ge=0)
    clock_mhz: float = 0.0
    """Highest clock of the multiprocessors."""
    memory_clock_mhz: float = 0.0
    copy_bytes_per_s: float = Field(ge=0)
    """Copy bandwidth, bytes read plus bytes written; 0 where it was not measured."""
    read_bytes_per_s: float = Field(ge=0)
    """Bandwidth of reading alone."""
    fma_flops_per_s: float = Field(ge=0)
    """float32 multiply-adds on ordinary cores, two flops each."""
    tensor_flops_per_s: dict[str, float] = {}
    """Dense matrix-unit rate by input type: float16, accumulated in float32."""
    launch_s: float = 0.0
    """An empty kernel, launch to launch, in a stream."""
    cold_launch_s: float = Field(default=0.0, ge=0)
    """An empty kernel between two events, caches flushed before; 0 where it was not measured."""
    cold_load_s: float = Field(default=0.0, ge=0)
    """One of a chain of loads from memory of which each waits for the one before; 0 where it was not measured."""
    l2_gather_bytes_per_s: Rates = {}
    """Reading random rows of a table that fits into L2, by the bytes of a row."""
    l1_gather_bytes_per_s: Rates = {}
    """The same of a table that fits into L1."""
    table_gather_bytes_per_s: Rates = {}
    """Reading random rows of 512 bytes, by the bytes of the table: of one beyond the L2, rows are fetched again."""
    tables: dict[str, list[float]] = {}
    """Calibration tables of cost models, by name."""
    calibrated_with: dict[str, str] = {}
    """Versions (driver, CUDA, spmark) and the day of the measurement."""

    @property
    def compute_capability(self) -> int:
        """The architecture as a number: 90 for sm_90, 0 for a target other than a GPU."""
        known = _ARCH.fullmatch(self.arch)
        return int(known[1]) if known else 0

    @property
    def has_wgmma(self) -> bool:
        """Whether four warps may multiply together out of shared memory; the host stands in for every GPU."""
        return self.kind is DeviceKind.HOST_SIMT or self.compute_capability == 90

    def refetched_share(self, table_bytes: int) -> float:
        """Give the most of a gathered byte that can have come from memory, by the bandwidth that was measured.

        Parameters
        ----------
        table_bytes : int
            Out of ``table_gather_bytes_per_s``.
        """
        return min(1.0, self.read_bytes_per_s / self.table_gather_bytes_per_s[table_bytes])

    def flops_per_s(self, dtype: str) -> float:
        """Give the highest rate at which products of ``dtype`` can be accumulated in float32."""
        return max(self.fma_flops_per_s, self.tensor_flops_per_s.get(DType(dtype).measured_as, 0.0))

    def text(self) -> str:
        """Give the spec as JSON, which `load` reads."""
        return self.model_dump_json(indent=2) + "\n"

    def save(self, path: Path) -> None:
        """Write the spec as JSON."""
        path.write_text(self.text())

    @classmethod
    def load(cls, path: Path) -> DeviceSpec:
        """Read a spec.

        Raises
        ------
        DeviceError
            The file is missing or is not a device spec; names the file and the field.
        """
        with reading(path, "a device spec", DeviceError):
            return parse_model(cls, path.read_bytes())
