"""What counts of code, held against Python's own tokens over every file of the project."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from spmark.impls.core.digest import cpp_code, python_code

ROOT = Path(__file__).parents[2]
FOLDERS = ("impls", "records", "studies", "datasets", "suite", "report", "tests")
IGNORED = {tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def statements(text: str, bare: bool) -> Iterator[list[str]]:
    """Give the tokens of statement by statement with its column; without those that are a string, if ``bare``."""
    words: list[tuple[int, str]] = []
    column = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in IGNORED:
            continue
        if token.type != tokenize.NEWLINE:
            column = column if words else token.start[1]
            words.append((token.type, token.string))
            continue
        prose = all(kind == tokenize.STRING and not re.match("[rRuU]*[bBfF]", word) for kind, word in words)
        if not (bare and prose):
            yield [str(column), *(word for _, word in words)]
        words = []


@pytest.mark.full
@pytest.mark.parametrize("folder", FOLDERS)
def test_python_keeps_every_token_but_prose(folder: str) -> None:
    looked_at = 0
    for path in (ROOT / folder).rglob("*.py"):
        if "__pycache__" in path.parts:
            continue
        text = path.read_text(encoding="utf-8")
        kept = list(statements(python_code(text), bare=False))
        assert kept == list(statements(text, bare=True)), path
        looked_at += len(kept)
    assert looked_at > 100


ALIKE = [
    ("x = 1", "x = 1  # one\n\n\n# two\n"),
    ("def f(a):\n    return a", 'def f(a):\n    """Doc\n\n  # no comment\n    """\n\n    return a\n'),
    ("class A:\n    x: int", "class A:\n    'doc'\n    x: int\n    r'''What it is.'''\n"),
    ("f(1, 2)", "f(1,  # one\n   2)"),
    ("x = 1 + 2", "x = 1 + \\\n    2"),
    ("x = 1", "\r\nx = 1\r\n"),
    ("x = 1", 'x = 1\n"a" "b"  # two strings\n'),
]
UNLIKE = [
    ("x = 1", "x = 2"),
    ("if a:\n    b()\nc()", "if a:\n    b()\n    c()"),
    ("x = 'a'", "x = 'b'"),
    ("x = 'a  b'", "x = 'a b'"),
    ("x = '# a'", "x = '# b'"),
    ("x = (\n    'a'\n)", "x = (\n    'b'\n)"),
    ('f(\n    """a"""\n)', 'f(\n    """b"""\n)'),
    ("f(\n    'a'\n    'b'\n)", "f(\n    'a'\n)"),
    ("f'{launch()}'", ""),
    ("x = 1; 'a'", "x = 1; 'b'"),
    ("return 'a'", "return"),
    ("not x", "notx"),
    ('x = "it\'s"  # a', 'x = "it is"  # a'),
]


@pytest.mark.parametrize("one, other", ALIKE)
def test_python_that_runs_alike_is_alike(one: str, other: str) -> None:
    assert python_code(one) == python_code(other)


@pytest.mark.parametrize("one, other", UNLIKE)
def test_python_that_runs_otherwise_is_not(one: str, other: str) -> None:
    assert python_code(one) != python_code(other)


CPP_ALIKE = [
    ("int a;", "int a; // a \\\n still\n/* b\n * c */"),
    ("int a; int b;", "int   a;\n\n    int b;"),
    ("#define A 1\nint b;", "#define A /* one\n two */ \\\n  1\nint\nb;"),
    ("a /b", "a /**/ /b"),
    ("f(1'000); g();", "f(1'000); // isn't\ng();"),
]
CPP_UNLIKE = [
    ("int a;", "int b;"),
    ("int a;", "inta;"),
    ('asm("// a");', 'asm("// b");'),
    ('f("a  b");', 'f("a b");'),
    ('f(R"x(// "a)x");', 'f(R"x(// "b)x");'),
    ("f('\"', 1); // \"", "f('\"', 2); // \""),
    ("#define A 1\nint b;", "#define A 1 int b;"),
    ("#if A\nb();\n#endif", "#if A b();\n#endif"),
    ("a / /* */ b", "a // b"),
]


@pytest.mark.parametrize("one, other", CPP_ALIKE)
def test_cuda_that_compiles_alike_is_alike(one: str, other: str) -> None:
    assert cpp_code(one) == cpp_code(other)


@pytest.mark.parametrize("one, other", CPP_UNLIKE)
def test_cuda_that_compiles_otherwise_is_not(one: str, other: str) -> None:
    assert cpp_code(one) != cpp_code(other)


def test_cuda_of_the_project_loses_comments_alone() -> None:
    """No file holds a string with a comment's mark in it, so that a plain removal is right."""
    looked_at = 0
    for path in (path for ending in ("cu", "cuh") for path in (ROOT / "impls").rglob(f"*.{ending}")):
        text = path.read_text(encoding="utf-8")
        plain = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)
        assert re.sub(r"\s", "", cpp_code(text)) == re.sub(r"\\\n|\s", "", plain), path
        looked_at += 1
    assert looked_at > 30
