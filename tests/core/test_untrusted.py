"""What parsers raise becomes an error of ours, what is ours or the user's passes; JSON that is odd."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from spmark.impls.core.errors import DatasetError, MatrixError, RecordError
from spmark.impls.core.untrusted import NoJsonError, parse_json, parse_model, reading


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


class Row(BaseModel):
    number: int = 0
    config: dict[str, Any] = {}


def nested(depth: int, opener: str = "[", closer: str = "]") -> bytes:
    return (opener * depth + closer * depth).encode()


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_what_is_written_is_read(value):
    assert parse_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize("depth", [1, 7, 150])
def test_depth_up_to_the_limit_is_read(depth):
    assert parse_json(nested(depth)) is not None
    inside = nested(depth - 2) if depth > 2 else b"0"
    assert parse_model(Row, b'{"config": {"a": ' + inside + b"}}").config.keys() == {"a"}


@pytest.mark.parametrize("text", [nested(205), nested(100_000), b"[" * 100_000, b'{"a":' * 100_000])
def test_what_is_nested_deeper_is_refused(text):
    with pytest.raises(NoJsonError, match="recursion limit exceeded"):
        parse_json(text)
    with pytest.raises(NoJsonError, match="recursion limit exceeded"):
        parse_model(Row, b'{"config": {"a": ' + text + b"}}")


def test_brackets_side_by_side_or_in_text_are_no_depth():
    side_by_side = b"[" + b",".join([b"[]"] * 1000) + b"]"
    assert len(parse_json(side_by_side)) == 1000
    text = "[" * 1000 + '\\"' + "{" * 1000
    assert parse_json(json.dumps({"config": {"a": text}}).encode()) == {"config": {"a": text}}
    assert parse_model(Row, json.dumps({"config": {"a": text}}).encode()).config == {"a": text}


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b'"\xed\xa0\x80"', b"9" * 5000, b"nul", b'{"a": 1', b"[1,]"])
def test_what_is_no_json_is_told(text):
    with pytest.raises(NoJsonError):
        parse_json(text)
