"""``spmark report``: the same bytes on one core and on several, and its stages on a terminal alone."""

from __future__ import annotations

import contextlib
import io
import json
import logging
from pathlib import Path

import pytest
from rich.console import Console

from spmark.impls.core.errors import RecordError
from spmark.report.page import site
from spmark.suite import helpers
from spmark.suite.commands import report as command
from spmark.suite.commands.progress import Stages

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
    monkeypatch.setattr(helpers, "allowed_cores", lambda: [0])
    alone = drawn("alone")
    monkeypatch.setattr(helpers, "allowed_cores", lambda: [0, 1])
    monkeypatch.setattr(site, "WORTH_HELPERS", 1)
    assert drawn("helped") == alone
    assert "index.html" in alone


@pytest.mark.parametrize(("many", "at_once"), [(1, True), (1 << 20, False)])
def test_only_many_records_start_helpers_before_they_are_read(drawn, monkeypatch, many, at_once):
    asked = []

    def counted(*modules, **how):
        asked.append(how)
        return contextlib.nullcontext()

    monkeypatch.setattr(command, "_MANY_BYTES", many)
    monkeypatch.setattr(command, "helpers", counted)
    drawn("a")
    assert asked == [{"at_once": at_once}]


def test_a_path_that_the_system_refuses_is_an_error_of_records(tmp_path):
    with pytest.raises(RecordError, match="found: File name too long"):
        command.draw([Path("n" * 5000)], tmp_path, baseline=None, title=None, paper=None, as_json=False)


def test_stages_stand_on_a_terminal(drawn, monkeypatch, caplog):
    screen = Console(file=io.StringIO(), force_terminal=True, width=80)
    monkeypatch.setattr(command, "console", lambda as_json: screen)
    drawn("a")
    stages = [record.getMessage() for record in caplog.records]
    assert stages[:3] == ["reading records", "deriving speed-ups", "answering the papers' claims"]
    assert stages[-1] == "writing pages, figures and tables"
    # A terminal is written ten times a second, and figures take longer.
    assert "drawing figures: " in screen.file.getvalue()


def test_json_has_no_stages(drawn, capsys):
    drawn("a", as_json=True)
    out, err = capsys.readouterr()
    assert json.loads(out)["page"].endswith("index.html")
    assert not err


def test_stages_leave_the_logger_as_it_was():
    screen = Console(file=io.StringIO(), force_terminal=True)
    logger = logging.getLogger("spmark.report")
    before = logger.level, list(logger.handlers)
    with Stages(screen, "spmark.report"):
        logger.getChild("page").info("a [bold]stage\x1b")
        logger.warning("not a stage")
    assert (logger.level, logger.handlers) == before
    assert "not a stage" not in screen.file.getvalue()
