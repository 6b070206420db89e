"""From times to a table: what is chosen where, by times that follow known rules."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from problems import random_csr

from spmark.impls.core.errors import BuildError, DatasetError
from spmark.impls.core.problem import DType
from spmark.impls.liteform.cost import Weights, count, weighed
from spmark.impls.liteform.schedule import (
    CellSchedule,
    Gathering,
    ScheduleEntry,
    ScheduleTable,
    nearest,
    read_table,
    table_for,
)
from spmark.studies.liteform.schedules import (
    COUNTED,
    ScheduleRow,
    TimedSchedule,
    curves_of,
    fitted_entries,
    fitted_gathering,
    fitted_weights,
    make_table,
    times_of,
)

pytestmark = pytest.mark.full

SMALL, LARGE = CellSchedule(4, 8, 16), CellSchedule(4, 8, 64)
SCHEDULES = [CellSchedule(4, lanes, work) for lanes in (8, 16) for work in (8, 16, 32, 64)]


def trials(nnz: int, best: CellSchedule) -> ScheduleRow:
    times = {one: 10.0 * (1 + (one != best) * (0.1 + 0.01 * one.work)) for one in SCHEDULES}
    timed = [TimedSchedule(max_width=32, gathered=False, schedule=one, time_us=us) for one, us in times.items()]
    return row(1, Weights(2.0, 0.2, 10.0, 3.0, 1000.0), 32).model_copy(update={"nnz": nnz, "timed": tuple(timed)})


def test_each_size_gets_its_schedule() -> None:
    rows = [trials(nnz, SMALL) for nnz in (4000, 6000, 9000)] + [trials(nnz, LARGE) for nnz in (2**21, 2**22)]
    entries = fitted_entries(times_of(rows))
    assert len(entries) < 7 * 6 / 2, "points that say the same are left out"

    def chosen(nnz: int) -> CellSchedule:
        return nearest(
            entries, ScheduleEntry(dtype="float32", width=32, nnz=nnz, max_width=32, schedule=SMALL)
        ).schedule

    assert chosen(5000) == SMALL
    assert chosen(2**22) == LARGE


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
    found, curves = fitted_weights(rows, times_of(rows), gathered=False), curves_of(times_of(rows), gathered=False)
    losses = []
    for one, (_, times) in zip(rows, curves, strict=True):
        prices = weighed(one.counts(thirds=False), one.width, found)[0]
        taken = min(times, key=lambda width: prices[width.bit_length() - 1])
        losses.append(times[taken] / min(times.values()) - 1)
    assert np.mean(losses) < 0.01, losses


def test_rows_are_gathered_where_that_was_faster() -> None:
    truth = Weights(2.0, 0.2, 10.0, 3.0, 1000.0)
    rows = [
        row(1, truth, 32, gain=1.3),
        row(2, truth, 128, gain=0.8),
        row(3, truth, 256, gain=0.7),
        row(4, truth, 256, gain=1.2, gathered_share=0.79),
    ]
    rule = fitted_gathering(rows, times_of(rows))
    assert rule is not None
    taken = [
        rule.asks(one.nnz, one.width, one.dtype) and one.gathered_share <= rule.most_share * one.given_share
        for one in rows
    ]
    assert taken == [False, True, True, False]
    for few in (rows[:1], [row(1, truth)]):
        assert fitted_gathering(few, times_of(few)) is None


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
    (tmp_path / "my-gpu.json").write_text(ScheduleTable(device="nvidia-h200", entries=()).model_dump_json())
    monkeypatch.setattr("spmark.impls.liteform.schedule.shipped_table", lambda device: tmp_path / f"{device}.json")
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
