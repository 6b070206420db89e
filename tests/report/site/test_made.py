"""A report into the folder of an earlier one: what has not changed stays, and the bytes are those of a new report."""

from __future__ import annotations

import json

import pytest

from spmark.report.site import site, sweep_page
from spmark.report.site.site import MADE, write_report


def bytes_of(index):
    return {
        str(path.relative_to(index.parent)): path.read_bytes() for path in index.parent.rglob("*") if path.is_file()
    }


@pytest.fixture(autouse=True)
def one_figure(monkeypatch):
    """Draw the first figure of each sweep alone, which takes a tenth of the time."""
    plots = sweep_page.plots
    monkeypatch.setattr(sweep_page, "plots", lambda *of, **how: plots(*of, **how)[:1])


@pytest.fixture
def drawn(monkeypatch):
    """Give the list of sweeps whose pages were made since the list was cleared."""
    names = []
    render = site.render_sweep

    def counted(task):
        done = render(task)
        names.extend([done.name] if done.files else [])
        return done

    monkeypatch.setattr(site, "render_sweep", counted)
    return names


@pytest.fixture
def two(records, tmp_path):
    """Give a folder with the records of two sweeps, which share no case."""
    for name, widths in (("first", (32,)), ("second", (64, 128))):
        records.write_records(tmp_path, records.sweep(widths=widths), sweep_name=name)
    return tmp_path / "results"


def test_nothing_is_drawn_twice(two, tmp_path, drawn):
    before = bytes_of(write_report([two], tmp_path / "out").index)
    assert len(drawn) == len(set(drawn)) == 2
    drawn.clear()
    assert bytes_of(write_report([two], tmp_path / "out").index) == before
    assert not drawn
    assert bytes_of(write_report([two], tmp_path / "new").index) == before
    assert len(drawn) == 2


def test_a_sweep_with_another_record_is_drawn_anew(two, tmp_path, drawn):
    write_report([two], tmp_path / "out")
    (changed,) = [path for path in two.rglob("records.jsonl") if "second" in str(path)]
    line = next(line for line in changed.read_text().splitlines() if json.loads(line)["samples_us"])
    row = json.loads(line)
    row["samples_us"] = [2 * us for us in row["samples_us"]]
    changed.write_text(changed.read_text().replace(line, json.dumps(row)))
    drawn.clear()
    now = bytes_of(write_report([two], tmp_path / "out").index)
    assert len(drawn) == 1
    assert now == bytes_of(write_report([two], tmp_path / "new").index)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("sweep", ["first", "second"])
def test_a_file_that_is_gone_is_written_anew(two, tmp_path, drawn, sweep):
    before = bytes_of(write_report([two], tmp_path / "out").index)
    next((tmp_path / "out/figures").glob(f"*-{sweep}-*.svg")).unlink()
    drawn.clear()
    assert bytes_of(write_report([two], tmp_path / "out").index) == before
    assert len(drawn) == 1


def test_other_code_draws_all_anew(two, tmp_path, drawn, monkeypatch):
    write_report([two], tmp_path / "out")
    drawn.clear()
    monkeypatch.setattr(site, "_code", lambda: "other")
    write_report([two], tmp_path / "out")
    assert len(drawn) == 2


def test_a_sweep_that_is_left_out_has_no_page(two, tmp_path):
    write_report([two], tmp_path / "out")
    first = next(path.parent for path in two.rglob("records.jsonl"))
    index = write_report([first], tmp_path / "out").index
    assert len(list(index.parent.glob("sweeps/*/index.html"))) == 1
    assert len(json.loads((tmp_path / "out" / MADE).read_text())["sweeps"]) == 1


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "text", ["no JSON", "{}", "[]", '{"whole": 1, "notices": [], "files": [], "sweeps": {}}', '{"sweeps": {"a": 3}}']
)
def test_a_damaged_list_of_what_was_made_draws_all_anew(two, tmp_path, drawn, text):
    before = bytes_of(write_report([two], tmp_path / "out").index)
    (tmp_path / "out" / MADE).write_text(text)
    drawn.clear()
    assert bytes_of(write_report([two], tmp_path / "out").index) == before
    assert len(drawn) == 2
