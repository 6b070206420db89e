"""Calibrating dependent loads and gathered rows: the kernels and their rates, on the host with tiny sizes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from spmark.impls.runtime.compile import cache_folder
from spmark.impls.runtime.device import host_simt
from spmark.impls.runtime.host.compile import compile_host
from spmark.impls.runtime.host.launch import launch_host
from spmark.impls.runtime.host.target import HostTarget
from spmark.impls.runtime.timing import Run, Stopwatch
from spmark.impls.runtime.toolchain import INCLUDE

SOURCE = Path(__file__).parents[2] / "impls" / "runtime" / "kernels" / "calibrate.cu"
GATHERS = [f"gather_rows<{vectors}, 2, 32>" for vectors in (4, 32, 128)]


@pytest.fixture(scope="module")
def executable() -> Path:
    return compile_host(SOURCE, ["follow_chain<32>", *GATHERS], [INCLUDE], cache_folder())


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


class Steps(Stopwatch):
    """Runs a first batch of everything, and says that the second took 1 us, of the next thing 2 us, and so on."""

    def __init__(self) -> None:
        self.asked: list[bool] = []

    def batch(self, runs: Sequence[Run], rounds: int, cold: bool) -> NDArray[np.float64]:
        self.asked.append(cold)
        if len(self.asked) % 2:
            runs[0]()
        return np.full((1, rounds), len(self.asked) / 2)


@pytest.mark.full
def test_rates_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cupy")
    from spmark.impls.runtime import calibrate

    monkeypatch.setattr(calibrate, "_GATHER_ROUNDS", 1)
    monkeypatch.setattr(calibrate, "_GATHER_BLOCKS_PER_SM", 1)
    spec = host_simt().model_copy(update={"num_sms": 1, "l2_bytes": 64 << 10})
    gauge = calibrate._Gauge(spec, HostTarget(spec), Steps())
    table, sink = np.ones(1 << 16, np.float32), np.zeros(256, np.float32)
    # The chains of 8 and 72 links take 1 and 2 us.
    assert calibrate._cold_load_s(gauge) == pytest.approx(1e-6 / 64)
    gauge = calibrate._Gauge(spec, HostTarget(spec), Steps())
    rates = calibrate._gather_rates(gauge, table, sink)
    # 256 threads: 64 groups of 4 lanes read 2 rows of 64 bytes each, 8 warps 2 rows of 512 to 2,048 bytes.
    read = [8192, 8192, 8192, 8192, 16384, 32768]
    sizes = [64, 128, 256, 512, 1024, 2048]
    pairs = list(zip(sizes, read, strict=True))
    expected = {
        "l2_gather_bytes_per_s": {size: some * 1e6 / at for at, (size, some) in enumerate(pairs, 1)},
        "l1_gather_bytes_per_s": {size: some * 1e6 / at for at, (size, some) in enumerate(pairs, 7)},
        "table_gather_bytes_per_s": {part << 10: 8192e6 / at for at, part in enumerate((32, 64, 128, 256), 13)},
    }
    assert rates.keys() == expected.keys()
    for name, by_size in expected.items():
        assert rates[name] == pytest.approx(by_size), name
    assert gauge.stopwatch.asked == [False] * 32
