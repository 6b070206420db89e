"""The read that follows the flush where it is asked for: every byte of the buffer, and what it costs a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from compilers import needs_compilers
from sampling import ARCHES

from spmark.impls.core.errors import CompileError
from spmark.impls.runtime.compile import compile_many
from spmark.impls.runtime.device import find
from spmark.impls.runtime.host.ring import compile_host, launch_host
from spmark.records.schema import Flush

SOURCE = Path(__file__).parents[2] / "impls" / "runtime" / "kernels" / "calibrate.cu"


@needs_compilers
def test_the_read_compiles_for_every_target() -> None:
    for binary in compile_many([(SOURCE, "read_all<1, 512>", arch) for arch in ARCHES], 1):
        assert not isinstance(binary, CompileError), binary
        assert binary.spill_bytes == 0


@pytest.mark.full
@pytest.mark.parametrize("vectors", [0, 1, 63, 64, 200])
def test_it_reads_every_value_once(vectors: int) -> None:
    executable = compile_host(SOURCE, ["read_all<1, 32>"])
    for at in {0, 4 * vectors - 1} if vectors else {None}:
        source, sink = np.zeros(4 * vectors, np.float32), np.full(1, 7, np.float32)
        if at is not None:
            source[at] = -1  # the sum that the kernel writes down
        launch_host(executable, "read_all<1, 32>", (2, 1, 1), (32, 1, 1), 0, [np.int64(vectors), source, sink])
        assert sink[0] == (7 if at is None else -1)


@pytest.mark.gpu
def test_a_large_copy_costs_less_where_no_written_line_is_left() -> None:
    """Lines that the copy reads push the flush's dirty lines out, which are then stored while the copy runs."""
    cupy = pytest.importorskip("cupy")
    from spmark.impls.runtime.cudalab import CudaStopwatch

    spec = find("cuda")
    source, target = (cupy.zeros(spec.l2_bytes // 8, cupy.float32) for _ in range(2))

    def copy() -> None:
        target.data.copy_from_device_async(source.data, source.nbytes)

    def median(flush: Flush) -> float:
        watch = CudaStopwatch(spec, flush)
        watch.batch([copy], 3, cold=True)
        return float(np.median(watch.batch([copy], 21, cold=True)))

    assert 0 < median(Flush.READ) < median(Flush.WRITE)
