"""Names out of files on their way into paths, terminals and git."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spmark.impls.core.errors import printable
from spmark.impls.core.files import path_component
from spmark.suite.environment import is_commit

HOSTILE = (
    "",
    ".",
    "..",
    "../../evil",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "C:\\x",
    "~",
    "-rf",
    "a\0b",
    "x\n",
    "\ud800",
    "é" * 300,
)


@pytest.mark.parametrize(
    "name", ["nvidia-h200", "amd-epyc-9555-64-core-processor", "spmm_v2.1", "ogbn-arxiv@AT", "a" * 80]
)
def test_a_safe_name_stays_as_it_is(name):
    assert path_component(name) == name


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_stays_inside_its_folder(name, tmp_path):
    place = tmp_path / path_component(name)
    assert place.resolve().parent == tmp_path.resolve()
    place.write_text("")
    assert [path.name for path in tmp_path.iterdir()] == [path_component(name)]


@given(st.text(), st.text())
def test_two_names_have_two_places(first, second):
    assert (path_component(first) == path_component(second)) == (first == second)
    assert Path(path_component(first)).parts == (path_component(first),)
    assert len(path_component(first)) < 100


def test_control_characters_are_spelled():
    assert printable("a\x1b[31mb\rc\x07\u202ed\ud800\x9be\u2028") == r"a\x1b[31mb\rc\x07\u202ed\ud800\x9be\u2028"
    assert printable("one\ntwo\x1b", "\n") == "one\ntwo\\x1b"
    assert printable("µ × ± “ü” 漢") == "µ × ± “ü” 漢"


@given(st.text())
def test_what_is_printed_is_printable(text):
    assert printable(text).isprintable()


@pytest.mark.parametrize("text", ["abcdef0", "0" * 40, "f" * 64])
def test_hashes_are_commits(text):
    assert is_commit(text)


@pytest.mark.parametrize(
    "text", ["", "abcdef", "HEAD", "--output=x", "abcdef0\n", "ABCDEF0", "0" * 65, "abcdef0+", "a" * 40 + ";"]
)
def test_other_text_is_no_commit(text):
    assert not is_commit(text)
