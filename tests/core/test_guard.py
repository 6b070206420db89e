"""What parsers raise becomes one error of ours; what is ours, or the user's, passes."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from spmark.impls.core.errors import DatasetError, MatrixError, RecordError
from spmark.impls.core.guard import reading


def parse_nested() -> None:
    json.loads("[" * 200_000)


def fill_memory() -> None:
    raise MemoryError


@pytest.mark.parametrize(
    ("parser", "told"),
    [
        (lambda: int("x"), r"something else \(ValueError: invalid literal for int\(\) with base 10: 'x'\)"),
        ([].pop, r"something else \(IndexError: pop from empty list\)"),
        (lambda: None.x, r"something else \(AttributeError: "),
        (b"\xff".decode, r"something else \(UnicodeDecodeError: "),
        (Path("/nowhere/x").read_bytes, "no such file"),
        (Path("/").read_bytes, r"an unreadable file \(Is a directory\)"),
        (parse_nested, "parts that are nested too deeply"),
        (fill_memory, "more than fits into memory"),
    ],
)
def test_a_parsers_exception_becomes_ours(parser, told):
    with pytest.raises(RecordError, match=rf"^f\.json: expected a record, found {told}") as caught:
        with reading("f.json", "a record", RecordError):
            parser()
    assert caught.value.__cause__ is not None


def test_the_remedy_comes_last():
    with pytest.raises(DatasetError, match=r"; fetch it again$"), reading("f", "a matrix", remedy="fetch it again"):
        raise ValueError("x")


def test_what_may_not_be_read_is_no_damaged_file():
    with pytest.raises(DatasetError, match=r"\(Permission denied\); give this account the right to read it$"):
        with reading("f", "a matrix", remedy="fetch it again"):
            raise PermissionError(errno.EACCES, "Permission denied")


@pytest.mark.parametrize("error", [MatrixError("mine"), KeyboardInterrupt(), SystemExit(2), GeneratorExit()])
def test_what_is_ours_or_the_users_passes(error):
    with pytest.raises(type(error)) as caught, reading("f", "a matrix"):
        raise error
    assert caught.value is error


def test_what_a_file_says_reaches_no_terminal():
    with pytest.raises(DatasetError) as caught, reading("f", "a matrix"):
        raise ValueError("\x1b]0;title\x07" + "x" * 10_000)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 700
    assert r"\x1b]0;title\x07xxx" in str(caught.value)
