"""``spmark report``: the same bytes on one core and on several, and its stages on a terminal alone."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from spmark.impls.core.errors import RecordError
from spmark.report.site import site
from spmark.suite.cli import report as command

pytestmark = pytest.mark.full


@pytest.fixture
def drawn(records, write, tmp_path):
    """Give a function that reports a small sweep and gives the bytes of its files."""
    folder = write(records.sweep(widths=(32, 128)))

    def draw(name: str, *, as_json: bool = False):
        out = tmp_path / name
        command.draw([folder], out, baseline=None, title=None, paper=None, as_json=as_json)
        return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}

    return draw


def test_the_number_of_cores_changes_no_byte(drawn, monkeypatch):
    monkeypatch.setattr(site, "allowed_cores", lambda: [0])
    alone = drawn("alone")
    monkeypatch.setattr(site, "allowed_cores", lambda: [0, 1])
    monkeypatch.setattr(site, "WORTH_HELPERS", 1)
    assert drawn("helped") == alone
    assert "index.html" in alone


def test_a_path_that_the_system_refuses_is_an_error_of_records(tmp_path):
    with pytest.raises(RecordError, match="found: File name too long"):
        command.draw([Path("n" * 5000)], tmp_path, baseline=None, title=None, paper=None, as_json=False)


def test_stages_stand_on_a_terminal(drawn, monkeypatch, caplog):
    screen = Console(file=io.StringIO(), force_terminal=True, width=80)
    monkeypatch.setattr(command, "console", lambda as_json: screen)
    drawn("a")
    assert [record.getMessage() for record in caplog.records] == ["reading records", "drawing figures: 1 sweeps"]
    assert "drawing figures: " in screen.file.getvalue()
