"""A candidate chosen by counting instructions and bytes: what there is until proxies are run on the device.

Not the paper's: it measures proxies. A kernel without loops is executed once by each thread block, so that its code is
data too and may well be the largest part of the time. The rates below are assumptions, not measurements.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.lo_spmm.space import TileSize
from spmark.impls.runtime.target import ceil_div

_INSTRUCTION_BYTES = 16
_CODE_BYTES_PER_CYCLE = 1.25
"""Of one multiprocessor, code that it has not run lately."""
_CACHED_CODE_BYTES_PER_CYCLE = 16.0
"""The same for code that the thread block before ran: taken to be one instruction a cycle."""
_DATA_BYTES_PER_CYCLE = 64.0
"""From L2 to one multiprocessor."""
_ISSUED_PER_CYCLE = 4.0
_ENTRY_INSTRUCTIONS = 30


@dataclass(frozen=True)
class Estimate:
    """Cycles that the busiest multiprocessor needs for one thing alone; the largest is the estimate."""

    issue: float
    code: float
    data: float

    @property
    def cycles(self) -> float:
        """The bound."""
        return max(self.issue, self.code, self.data)


def estimate(
    size: TileSize, width: int, nnz: NDArray[np.int64], nnc: NDArray[np.int64], device: DeviceSpec
) -> Estimate:
    """Estimate a candidate.

    Parameters
    ----------
    size : TileSize
    width : int
        J.
    nnz, nnc : (tiles,) int64
        Non-zeros and non-empty columns of the row tiles (`spmark.impls.lo_spmm.features.count_tiles`).
    device : DeviceSpec
    """
    columns = ceil_div(width, size.tile_width)
    instructions = float((nnz * size.cpt + nnc).mean()) + size.tile_rows + _ENTRY_INSTRUCTIONS
    loaded = float(nnc.mean()) * size.tile_width * 4
    blocks = ceil_div(nnz.size * columns, device.num_sms)
    # Blocks of neighbouring columns start one after the other: with more of them than multiprocessors, each of these
    # runs the same function several times in a row.
    functions = ceil_div(blocks, max(1, columns // device.num_sms))
    code = instructions * _INSTRUCTION_BYTES
    return Estimate(
        issue=blocks * instructions * (size.threads / device.warp_size) / _ISSUED_PER_CYCLE,
        code=functions * code / _CODE_BYTES_PER_CYCLE + (blocks - functions) * code / _CACHED_CODE_BYTES_PER_CYCLE,
        data=blocks * loaded / _DATA_BYTES_PER_CYCLE,
    )
