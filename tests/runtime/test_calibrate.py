"""Calibrating dependent loads and gathered rows: the kernels and their rates, on the host with tiny sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from spmark.impls.runtime.device import calibrate, find
from spmark.impls.runtime.host.ring import compile_host, launch_host

SOURCE = Path(__file__).parents[2] / "impls" / "runtime" / "kernels" / "calibrate.cu"
GATHERS = [f"gather_rows<{vectors}, 2, 32>" for vectors in (4, 32, 128)]


@pytest.fixture(scope="module")
def executable() -> Path:
    return compile_host(SOURCE, ["follow_chain<32>", *GATHERS])


@pytest.mark.parametrize("links", [0, 1, 7])
def test_a_chain_is_followed_to_its_end(executable: Path, links: int) -> None:
    pytest.importorskip("cupy")
    from spmark.impls.runtime.calibrate import chain_of

    chain, last = chain_of(32 * 40, 7), np.full(1, -1, np.int32)
    launch_host(executable, "follow_chain<32>", (1, 1, 1), (32, 1, 1), 0, [np.int32(links), chain, last])
    places = [0]
    for _ in range(links):
        places.append(int(chain[places[-1]]))
    assert last[0] == places[-1]
    lines = {place // 32 for place in places}
    assert len(lines) == links + 1, "every link lies in a line of its own"


@pytest.mark.parametrize("vectors", [4, 32, 128])
@pytest.mark.parametrize("num_rows", [1, 5])
@pytest.mark.parametrize("column", [0, -1])
def test_each_group_of_lanes_reads_whole_rows_of_the_table(
    executable: Path, vectors: int, num_rows: int, column: int
) -> None:
    table, lanes = np.zeros((num_rows, 4 * vectors), np.float32), min(vectors, 32)
    table[:, column] = -1 / 8  # of eight rows the sum is -1, which the kernel writes down
    reader = np.arange(64) % lanes == column % lanes
    for rounds in (3, 4, 5):
        sink = np.full(64, 7, np.float32)
        args = [np.int32(rounds), np.uint32(num_rows), table, sink]
        launch_host(executable, f"gather_rows<{vectors}, 2, 32>", (2, 1, 1), (32, 1, 1), 0, args)
        np.testing.assert_array_equal(sink, np.where(reader & (rounds == 4), -1, 7))


@pytest.mark.full
def test_the_rates_of_the_cores_are_measured() -> None:
    cpu = find("cpu").model_copy(update={"l2_bytes": 1 << 20})
    measured = calibrate(cpu)
    assert min(measured.copy_bytes_per_s, measured.read_bytes_per_s, measured.fma_flops_per_s) > 1e7
    assert measured.calibrated_with.keys() == {"numba", "on"}
