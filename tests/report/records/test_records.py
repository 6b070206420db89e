"""Loading: which record of a case counts, what is joined, what is passed over and what is refused."""

from __future__ import annotations

import bz2
import errno
import gzip
import json
import lzma
import os
from datetime import timedelta
from math import isnan
from pathlib import Path

import pandas as pd
import pytest

from spmark.impls.core.errors import RecordError
from spmark.impls.core.problem import DType, Op
from spmark.records.schema import Flush, Orientation, Status
from spmark.report.records import COLUMNS, current, load_records
from spmark.report.transfers import load_transfers


def test_one_row_per_case_with_facts_and_rates(records, write):
    rows = records.sweep(dtypes=(DType.FLOAT32, DType.FLOAT16))
    frame = load_records([write(rows)])
    assert list(frame) == list(COLUMNS)
    assert len(frame) == len(rows) == len({row.case_id for row in rows})
    by_case = frame.set_index("case_id")
    for row in rows:
        loaded = by_case.loc[row.case_id]
        assert list(loaded["samples_us"]) == row.samples_us
        assert loaded["matrix"] == row.spec.matrix.id
        assert loaded["compulsory_bytes"] == row.problem.compulsory_bytes
        assert loaded["copy_bytes_per_s"] == 4e12
        assert loaded["flops_per_s"] == (8e14 if row.spec.dtype is DType.FLOAT16 else 6e13)
        assert loaded["sweep"] == "graphs_spmm"


def test_a_path_may_be_text_and_stand_alone(records, write):
    folder = write(records.sweep())
    whole = load_records([folder])
    for paths in (folder, str(folder), [str(folder)], (folder / "records.jsonl", str(folder))):
        pd.testing.assert_frame_equal(load_records(paths), whole)
    for wrong in (None, 3, [None]):
        with pytest.raises(RecordError, match=r"expected a path of records, or several, found .*: pass a file or a"):
            load_records(wrong)
    with pytest.raises(RecordError, match="nowhere: expected a record file or a folder of records, found none"):
        load_records("nowhere")


def test_a_path_that_the_system_refuses_is_an_error_of_records():
    with pytest.raises(RecordError, match=r"nnn: expected a (record )?file or .* found"):
        load_records("n" * 5000)


@pytest.mark.parametrize("load", [load_records, lambda path: load_transfers([path])])
def test_a_folder_that_cannot_be_listed_is_an_error_and_not_empty(records, write, monkeypatch, load):
    place, list_it = write(records.sweep()), os.scandir
    locked = place / "locked"
    locked.mkdir()

    def scandir(folder):
        if Path(folder) == locked:
            raise PermissionError(errno.EACCES, "Permission denied", str(folder))
        return list_it(folder)

    load(place)
    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(RecordError, match=r"locked: expected a file or .* found: Permission denied; give this account"):
        load(place)


@pytest.mark.parametrize("name", ["m.mtx", "m.mtx.bz2", "m.mtx.gz", "m.mtx.xz"])
def test_a_file_of_another_kind_is_no_record_that_was_cut_off(tmp_path, caplog, name):
    content = b"%%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 1.0\n"
    pack = {".bz2": bz2.compress, ".gz": gzip.compress, ".xz": lzma.compress}.get(Path(name).suffix, bytes)
    (tmp_path / name).write_bytes(pack(content))
    with pytest.raises(RecordError, match=rf"{name}: expected lines of records, found another kind of file; pass a"):
        load_records(tmp_path / name)
    assert not caplog.records


def test_a_failure_gives_way_to_a_later_success_and_the_newest_wins(records, write):
    later = records.START + timedelta(hours=1)
    failed = records.measurement(status=Status.TIMEOUT)
    ok = records.measurement(samples_us=[3.0], started_at=later)
    again = records.measurement(samples_us=[2.0], started_at=later + timedelta(hours=1))
    assert load_records([write([failed, ok])])["status"].tolist() == ["ok"]
    assert [list(s) for s in load_records([write([again, ok])])["samples_us"]] == [[2.0]]


def test_versions_stay_apart_until_only_the_current_ones_are_kept(records, write):
    later = records.START + timedelta(hours=1)
    rows = [
        records.measurement(samples_us=[3.0]),
        records.measurement(samples_us=[2.0], implementation_version="v2", started_at=later),
        records.measurement(samples_us=[9.0], width=64, protocol_version=0),
    ]
    frame = load_records([write(rows)])
    assert len(frame) == 3
    assert current(frame)["implementation_version"].tolist() == ["v2"]


def test_flushes_stay_apart_and_only_the_default_is_kept_beside_another(records, write):
    later = records.START + timedelta(hours=1)
    read = records.measurement(samples_us=[2.0], flush=Flush.READ, started_at=later)
    frame = load_records([write([records.measurement(samples_us=[3.0]), read])])
    assert frame["flush"].tolist() == ["write", "read"]
    assert [list(taken) for taken in current(frame)["samples_us"]] == [[3.0]]
    assert [list(taken) for taken in current(frame[frame["flush"] == "read"])["samples_us"]] == [[2.0]]


def test_devices_stay_apart(records, write):
    ok = records.measurement(samples_us=[3.0])
    frame = load_records([write([ok, ok.model_copy(update={"device": "other"})])])
    assert sorted(frame["device"]) == ["other", "test-gpu"]


def test_scaled_and_transposed_are_named(records, write):
    row = records.measurement(op=Op.SDDMM, scaled=True, orientation=Orientation.TRANSPOSED, samples_us=[1.0])
    loaded = load_records([write([row])]).iloc[0]
    assert (loaded["op"], loaded["matrix"]) == ("sddmm-scaled", "ogb/arxiv@AT")


def test_patterns_that_share_an_id_are_named_apart(records, write):
    rows = [records.measurement(samples_us=[1.0], matrix_hash=digit * 64, case_id=f"case-{digit}") for digit in "ab"]
    assert sorted(load_records([write(rows)])["matrix"]) == ["ogb/arxiv #aaaaaa", "ogb/arxiv #bbbbbb"]


@pytest.mark.parametrize("telling", [0, 1])
def test_a_matrix_has_the_name_of_its_origin_where_one_row_says_what_else_it_is_called(records, write, telling):
    names = "heterophilous/actor", "mirror/actor"
    rows = []
    for at, name in enumerate((*names, "mirror/other")):
        source, matrix = name.split("/")
        row = records.measurement(source=source, matrix=matrix, matrix_hash=f"{at // 2:064x}", samples_us=[1.0])
        aliases = (names[1 - at],) if at == telling else ()
        rows.append(records.changed(row, matrix=row.spec.matrix.model_copy(update={"aliases": aliases})))
    rows[1] = rows[1].model_copy(update={"started_at": records.START + timedelta(hours=1)})
    frame = load_records([write(rows)])
    assert frame["matrix"].tolist() == ["mirror/other", names[0]]
    assert frame["case_id"].str.contains(names[0]).tolist() == [False, True]
    assert frame["started_at"].tolist() == [records.START, rows[1].started_at], "the newer record of one case"


@pytest.mark.parametrize(
    ("runs", "kept"),
    [
        (("a v1", "b v1"), ["ogb/arxiv #aaaaaa", "ogb/arxiv #bbbbbb"]),
        (("a v1", "b v2"), ["ogb/arxiv #aaaaaa", "ogb/arxiv #bbbbbb"]),
        (("a v1", "lost", "b v1", "b v1"), ["ogb/arxiv #aaaaaa", "ogb/arxiv #bbbbbb"]),
        (("b v1", "a v1", "lost"), ["ogb/arxiv #bbbbbb", "ogb/arxiv #aaaaaa"]),
        (("lost", "lost"), ["ogb/arxiv"]),
    ],
)
def test_files_of_one_name_with_other_patterns_stay_apart(records, write, runs, kept):
    """A failure without a pattern gives way to the success after it, else it replaces the success before it."""
    rows = []
    for at, run in enumerate(runs):
        pattern, _, version = run.partition(" ")
        known = {"matrix_hash": pattern * 64, "implementation_version": version, "samples_us": [1.0]}
        lost = {"matrix_hash": "", "status": Status.BUILD_ERROR}
        changes = lost if run == "lost" else known
        rows.append(records.measurement(**changes, started_at=records.START + timedelta(hours=at)))
    frame = load_records([write(rows)])
    assert frame["matrix"].tolist() == current(frame)["matrix"].tolist() == kept
    assert (frame["status"].iloc[-1] == "ok") == (runs[-1] != "lost")


def test_a_torn_line_is_passed_over_and_a_wrong_one_named(records, write, caplog):
    folder = write(records.sweep())
    file = folder / "records.jsonl"
    whole = load_records([folder])
    file.write_bytes(file.read_bytes()[:-40])
    assert len(load_records([folder])) == len(whole) - 1
    assert "cut off" in caplog.text
    file.write_text('{"case_id": 1}\n')
    with pytest.raises(RecordError, match=r"records\.jsonl:1: expected a Measurement"):
        load_records([folder])


def test_times_with_and_without_an_offset_stand_in_order(records, write):
    rows = [records.changed(row, case_id=f"case {n}") for n, row in enumerate(records.sweep()[:4])]
    folder = write(rows)
    file = folder / "records.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    times = ("2026-03-01T12:00:00", "2026-03-01T12:00:00+02:00", "2026-03-01T11:00:00Z", "2026-03-01T12:30:00")
    file.write_text("".join(json.dumps(line | {"started_at": t}) + "\n" for line, t in zip(lines, times, strict=True)))
    frame = load_records([folder])
    assert list(frame["case_id"]) == ["case 1", "case 2", "case 0", "case 3"]
    assert {time.utcoffset() for time in frame["started_at"]} == {timedelta(0)}
    file.write_text(json.dumps(lines[0] | {"started_at": "0001-01-01T00:00:00+14:00"}) + "\n")
    with pytest.raises(RecordError, match="years 1 to 9999"):
        load_records([folder])


@pytest.mark.parametrize(("kind", "pack"), [("bz2", bz2.compress), ("gz", gzip.compress), ("xz", lzma.compress)])
def test_archives_single_files_and_parents_are_found(records, write, kind, pack):
    folder = write(records.sweep())
    packed = folder / f"graphs.jsonl.{kind}"
    packed.write_bytes(pack((folder / "records.jsonl").read_bytes()))
    plain = load_records([folder / "records.jsonl"])
    assert len(load_records([packed])) == len(plain)
    assert load_records([packed])["sweep"].unique().tolist() == ["graphs"]
    assert len(load_records([folder.parent.parent, packed])) == len(plain)


def test_without_an_environment_there_are_no_rates(records, write, caplog):
    folder = write(records.sweep())
    (folder / "environments.jsonl").unlink()
    frame = load_records([folder])
    assert all(isnan(rate) for rate in frame["copy_bytes_per_s"])
    assert frame["facts"].tolist() == [None] * len(frame)
    assert "no roofline" in caplog.text


def test_nothing_is_an_empty_frame_and_a_missing_path_an_error(tmp_path):
    assert load_records([tmp_path]).empty
    assert list(load_records([tmp_path])) == list(COLUMNS)
    with pytest.raises(RecordError, match="expected a record file or a folder"):
        load_records([tmp_path / "nowhere"])


def test_what_models_learn_from_is_no_record(records, write):
    folder = write([records.measurement(samples_us=[1.0] * 8)])
    for name in ("samples/cpu", "labels"):
        (folder / name).mkdir(parents=True)
        (folder / name / "rows.jsonl").write_text('{"platform": "cpu"}\n')
    assert len(load_records([folder])) == 1
    with pytest.raises(RecordError, match="expected a Measurement"):
        load_records([folder / "labels"])
