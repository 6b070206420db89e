"""From times to a table: what is chosen where, by times that follow known rules."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from problems import random_csr

from spmark.impls.core.errors import BuildError, DatasetError
from spmark.impls.core.problem import DType
from spmark.impls.kernels.ell_buckets import NEVER
from spmark.impls.liteform.cost import count
from spmark.impls.liteform.schedule import (
    CellSchedule,
    Gathering,
    ScheduleEntry,
    ScheduleTable,
    candidates,
    nearest,
    read_table,
    schedule_for,
    table_for,
    tiles,
)
from spmark.impls.liteform.study.schedule_fit import Trials, fitted_entries
from spmark.impls.liteform.study.tuning import (
    COUNTED,
    ScheduleRow,
    TimedSchedule,
    fitted_gathering,
    fitted_thirds,
    fitted_weights,
    make_table,
)
from spmark.impls.liteform.weights import Weights, weighed

pytestmark = pytest.mark.full

RNG = np.random.default_rng(21)
SMALL, LARGE = CellSchedule(4, 8, 16), CellSchedule(4, 8, 64)
SCHEDULES = [CellSchedule(4, lanes, work) for lanes in (8, 16) for work in (8, 16, 32, 64)]


def trials(nnz: int, best: CellSchedule, skip: CellSchedule | None = None) -> Trials:
    times = {one: 10.0 * (1 + (one != best) * (0.1 + 0.01 * one.work)) for one in SCHEDULES if one != skip}
    return Trials(DType.FLOAT32, 32, nnz, 32, False, times)


def test_each_size_gets_its_schedule() -> None:
    rows = [trials(nnz, SMALL) for nnz in (4000, 6000, 9000)] + [trials(nnz, LARGE) for nnz in (2**21, 2**22)]
    entries = fitted_entries(rows)
    assert len(entries) < 7 * 6 / 2, "points that say the same are left out"

    def chosen(nnz: int) -> CellSchedule:
        return nearest(
            entries, ScheduleEntry(dtype="float32", width=32, nnz=nnz, max_width=32, schedule=SMALL)
        ).schedule

    assert chosen(5000) == SMALL
    assert chosen(2**22) == LARGE


def test_what_was_tried_once_does_not_beat_what_was_good_everywhere() -> None:
    rare = CellSchedule(2, 16, 8)
    rows = [trials(nnz, SMALL) for nnz in (4000, 6000, 9000)]
    lucky = replace(rows[0], times_us={**rows[0].times_us, rare: 9.99})
    assert {entry.schedule for entry in fitted_entries([lucky, *rows[1:]])} == {SMALL}


def row(seed: int, weights: Weights, width: int = 64, gain: float | None = None, **how) -> ScheduleRow:
    """Give times that are what the weights say, faster by a factor with gathered rows."""
    lengths = np.minimum(np.random.default_rng(seed).zipf(1.7, 400) + seed, 900)
    counts = count(random_csr(400, 1000, lengths.tolist(), seed), 1)
    prices = weighed(counts, width, weights)[0]
    timed = [
        TimedSchedule(
            max_width=1 << power,
            gathered=way,
            schedule=CellSchedule(4, 8, work),
            time_us=float(prices[power]) * 1e-3 * (1.0 if work == 32 else 1.2) * (gain if way and gain else 1.0),
        )
        for power, work, way in product(range(int(counts.widest[0]) + 1), (8, 16, 32, 64, 128, 256), (False, True))
        if not way or gain
    ]
    counted = {name: tuple(map(int, getattr(counts, name)[0])) for name in COUNTED}
    about = {"matrix": f"made/{seed}", "device": "gpu", "given_share": 0.8, "gathered_share": 0.4} | how
    return ScheduleRow(
        dtype=DType.FLOAT32,
        width=width,
        num_cols=1000,
        nnz=int(lengths.sum()),
        counted=counted,
        timed=tuple(timed),
        **about,
    )


def test_weights_are_found_that_choose_the_fastest_widths() -> None:
    truth = Weights(atomic=6.0, slot=0.1, chain=0.0, beyond=300.0, launch=0.0)
    rows = [row(seed, truth, width) for seed in range(6) for width in (32, 256)]
    found = fitted_weights(rows, gathered=False)
    losses = []
    for one in rows:
        times = one.by_width(gathered=False, tail_in_last=False)
        prices = weighed(one.counts(thirds=False), one.width, found)[0]
        taken = min(times, key=lambda width: prices[width.bit_length() - 1])
        losses.append(times[taken] / min(times.values()) - 1)
    assert np.mean(losses) < 0.01, losses


@pytest.mark.parametrize("gain", [0.9, 1.1])
def test_thirds_are_taken_where_formats_with_them_were_faster(gain: float) -> None:
    truth = Weights(2.0, 0.2, 10.0, 3.0, 1000.0)
    rows = [row(seed, truth) for seed in range(3)]
    both = [
        one.model_copy(
            update={
                "timed": (
                    *one.timed,
                    *(
                        timed.model_copy(update={"thirds": True, "time_us": gain * timed.time_us})
                        for timed in one.timed
                        if timed.max_width > 16
                    ),
                )
            }
        )
        for one in rows
    ]
    assert fitted_thirds(both) is (gain < 1)
    assert make_table(both).thirds is (gain < 1)
    assert not fitted_thirds(rows), "widths that were not tried are not taken"
    least, least_with = both[0].by_width(gathered=False, tail_in_last=False), both[0].by_width(False, False, True)
    assert least_with == {width: us * (gain if width > 16 else 1) for width, us in least.items()}


def test_rows_are_gathered_where_that_was_faster() -> None:
    truth = Weights(2.0, 0.2, 10.0, 3.0, 1000.0)
    rows = [
        row(1, truth, 32, gain=1.3),
        row(2, truth, 128, gain=0.8),
        row(3, truth, 256, gain=0.7),
        row(4, truth, 256, gain=1.2, gathered_share=0.79),
    ]
    rule = fitted_gathering(rows)
    assert rule is not None
    taken = [
        rule.asks(one.nnz, one.width, one.dtype) and one.gathered_share <= rule.most_share * one.given_share
        for one in rows
    ]
    assert taken == [False, True, True, False]
    assert fitted_gathering(rows[:1]) is None
    assert fitted_gathering([row(1, truth)]) is None


def test_gathering_is_not_decided_by_one_time_that_is_off_nor_done_for_next_to_nothing() -> None:
    truth = Weights(2.0, 0.2, 10.0, 3.0, 1000.0)
    one_is_off = [row(1, truth, 32, gain=0.3), *(row(seed, truth, 32, gain=1.04) for seed in range(2, 6))]
    assert fitted_gathering(one_is_off) is None, "even the sum of the logarithms says otherwise"
    assert fitted_gathering([row(seed, truth, 256, gain=0.995) for seed in range(3)]) is None
    assert fitted_gathering([row(seed, truth, 256, gain=0.98) for seed in range(3)]) is not None


def test_rows_of_b_count_by_their_bytes_when_gathering_is_decided() -> None:
    truth = Weights(2.0, 0.2, 10.0, 3.0, 1000.0)
    half = [row(seed, truth, 256, gain=0.8).model_copy(update={"dtype": DType.FLOAT16}) for seed in range(2)]
    rule = fitted_gathering([*half, row(3, truth, 64, gain=1.2)])
    assert rule is not None
    assert rule.least_width == 128
    assert all(rule.asks(one.nnz, one.width, one.dtype) for one in half)


def test_a_table_goes_through_a_file(tmp_path: Path) -> None:
    truth = Weights(2.0, 0.2, 10.0, 3.0, 1000.0)
    table = make_table([row(seed, truth, 128, gain=0.8) for seed in range(3)], "a command")
    assert {entry.schedule.work for entry in table.entries} == {32}
    assert {entry.gathered for entry in table.entries} == {False, True}
    assert isinstance(table.gathering, Gathering)
    path = tmp_path / "gpu.json"
    path.write_text(table.model_dump_json())
    assert read_table(path) == table
    path.write_text(table.model_dump_json().replace('"schema_version":3', '"schema_version":2'))
    with pytest.raises(BuildError, match="expected a table of schedules"):
        read_table(path)


def test_a_table_of_another_device_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "schedules"
    folder.mkdir()
    (folder / "my-gpu.json").write_text(ScheduleTable(device="nvidia-h200", entries=()).model_dump_json())
    monkeypatch.setattr("spmark.impls.liteform.schedule.files", lambda _: tmp_path)
    table_for.cache_clear()
    with pytest.raises(BuildError, match="expected the schedules of my-gpu, found those of nvidia-h200; measure them"):
        table_for("my-gpu")
    assert table_for("a-gpu-without-one") is None
    table_for.cache_clear()


def test_rows_of_several_devices_make_no_table() -> None:
    truth = Weights(2.0, 0.2, 10.0, 3.0, 1000.0)
    with pytest.raises(DatasetError, match="one device, found none"):
        make_table([])
    with pytest.raises(DatasetError, match="found gpu, other"):
        make_table([row(1, truth), row(2, truth, device="other")])


def test_no_ops_are_one_schedule() -> None:
    busy = CellSchedule(4, 8, 32, spread=64, together=256, by_row=True)
    assert busy.canonical(32) == CellSchedule(4, 8, 32)
    assert busy.canonical(64) == CellSchedule(4, 8, 32, spread=64)
    assert busy.canonical(512) == CellSchedule(4, 8, 32, spread=64, together=256)


@pytest.mark.parametrize("dtype", list(DType))
@pytest.mark.parametrize("width", [1, 3, 20, 32, 64, 130, 512])
def test_candidates_are_legal_and_different(width: int, dtype: DType) -> None:
    for loads, max_width in product((10**5, 10**7, 10**9), (8, 64, 512)):
        found = list(candidates(width, dtype, loads, max_width))
        assert found
        assert len(set(found)) == len(found)
        for one in found:
            assert width % one.vector == 0
            assert one.vector * dtype.itemsize <= 16
            assert one.spread in range(max_width + 1) or one.spread == NEVER
    assert set(tiles(width, dtype)) <= set(tiles(width, dtype, small=True))


def test_the_table_that_ships_knows_every_published_width(monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_for("nvidia-h200")
    assert isinstance(table, ScheduleTable)
    known = {(dtype.value, width) for dtype in DType for width in (32, 64, 128, 256, 512)}
    assert {(entry.dtype, entry.width) for entry in table.entries} == known
    assert {(entry.dtype, entry.width) for entry in table.direct} == known
    assert table.weights is not None
    assert table.gathering is not None
    for width in (32, 48, 512):
        found = schedule_for("nvidia-h200", width, DType.FLOAT32, nnz=10**6, max_width=64)
        assert width % found.vector == 0
    # Without entries in float16 those of rows of B of as many bytes are taken.
    single_only = table.model_copy(update={"entries": [one for one in table.entries if one.dtype == "float32"]})
    monkeypatch.setattr("spmark.impls.liteform.schedule.table_for", lambda device: single_only)
    single = schedule_for("nvidia-h200", 64, DType.FLOAT32, nnz=10**6, max_width=64)
    half = schedule_for("nvidia-h200", 128, DType.FLOAT16, nnz=10**6, max_width=64)
    assert half == replace(single, vector=2 * single.vector)
    assert schedule_for("nvidia-h200", 3, DType.FLOAT16, nnz=10**6, max_width=64).vector == 1
