"""YAML within limits: what sweeps use is read, what takes long or runs something is refused at once."""

from __future__ import annotations

import time

import pytest

from spmark.impls.core.errors import RecordError, SweepError
from spmark.impls.core.plainyaml import MAX_BYTES, MAX_NODES, parse_yaml

LAUGHS = "\n".join(["a0: &a0 [1, 1]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40))])


def test_what_people_write():
    text = "a: &x [1, 2.5, yes, null, 'b']\nb: *x\nc: {<<: {d: 1}, e: 0x10}\nf: 2026-01-31\n"
    data = parse_yaml(text.encode(), "f", SweepError)
    assert data["b"] == [1, 2.5, True, None, "b"]
    assert data["c"] == {"d": 1, "e": 16}
    assert parse_yaml("", "f", SweepError) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 60, "more than 50 levels"),
        ("{" * 60, "more than 50 levels"),
        ("- " * 20_000, "more than 50 levels"),
        ("[" * 20_000, "more than 50 levels|exceeded maximum nesting depth"),  # libyaml may be first
        ("{" * 20_000, "more than 50 levels|exceeded maximum nesting depth"),
        ("&a [*a]", "an alias of a value that contains it"),
        (LAUGHS, "more than 50,000 values, aliases counted"),
        ("- x\n" * (MAX_NODES + 1), "more than 50,000 values"),
        ("a: " + "9" * 5000, "a number of 5,000 characters"),
        ("a: 0x" + "f" * 50_000, "a number of 50,002 characters"),
        ("a: " + ":".join(["59"] * 60_000), "a number of 179,999 characters"),
        ("a: {b: 1, c: 2, b: 3}", "the key 'b' more than once"),
        ("x: 1\n" * 20_000, "the key 'x' more than once"),
        ("a: 2026-99-99", "month must be in 1..12"),
        ("*x", "undefined alias"),
        ("a: 1\n---\nb: 1\n", "a single document"),
        ("!!python/object/apply:os.system ['x']", "could not determine a constructor"),
        ("a: \x01", "characters are not allowed"),
        ("a" * (MAX_BYTES + 1), "at most 1,048,576 bytes, found 1,048,577"),
        (b"\xff\xfe\xff", "UnicodeDecodeError"),
    ],
)
def test_what_is_refused(text, message):
    began = time.process_time()
    with pytest.raises(RecordError, match=rf"^f\.yaml: expected YAML.*({message})"):
        parse_yaml(text, "f.yaml", RecordError)
    assert time.process_time() - began < 5


def test_aliases_count_as_what_they_repeat():
    many = "a: &a [" + "1, " * 999 + "1]\n"
    parse_yaml(many + "b: [" + "*a, " * 40 + "]\n", "f", SweepError)
    with pytest.raises(SweepError, match="aliases counted"):
        parse_yaml(many + "b: [" + "*a, " * 60 + "]\n", "f", SweepError)
