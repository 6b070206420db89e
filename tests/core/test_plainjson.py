"""JSON out of files: depth, numbers and text that other parsers stumble over."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from spmark.impls.core.plainjson import NoJsonError, parse_json, parse_model


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
