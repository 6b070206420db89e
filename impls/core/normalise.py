"""Code without comments, docstrings and white space that means nothing.

Digests are taken of such code, so that records stay valid where only prose changes. Regular expressions find the parts:
tokens and syntax trees differ between versions of Python, and a digest must not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_PYTHON = re.compile(
    r"""
    (?P<string>[rRbBuUfF]{0,2}(?:'''(?:[^\\]|\\.)*?'''|\"\"\"(?:[^\\]|\\.)*?\"\"\"|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"))
    |(?P<comment>\#[^\n]*)
    |(?P<continued>\\\n)
    |(?P<end>\n)
    |(?P<open>[(\[{])
    |(?P<close>[)\]}])
    """,
    re.VERBOSE | re.DOTALL,
)
_CPP = re.compile(
    r"""
    R"(?P<mark>[^\s()\\]*)\(.*?\)(?P=mark)"
    |"(?:[^"\\\n]|\\.)*"
    |(?<![0-9A-Fa-f])'(?:[^'\\\n]|\\.)*'
    |(?P<left_out>//(?:[^\\\n]|\\.)*|/\*(?!\s*spmark:?\s*\n).*?\*/|\\\n)
    |(?P<end>\n)
    """,
    re.VERBOSE | re.DOTALL,
)
CPP_FILES = (".cu", ".cuh", ".cpp", ".hpp", ".h")
"""Endings of CUDA and C++."""


def normalised(path: Path) -> bytes:
    """Give the part of a file that counts: the code of a file of Python, CUDA or C++, all of any other file."""
    content = path.read_bytes()
    if path.suffix not in (".py", *CPP_FILES):
        return content
    text = content.decode("utf-8", "surrogateescape")
    return (python_code(text) if path.suffix == ".py" else cpp_code(text)).encode("utf-8", "surrogateescape")


def python_code(text: str) -> str:
    """Give Python code without comments, statements that are only a string, and empty lines.

    White space that begins a statement stays; any other outside of strings becomes one space.
    """
    return "\n".join(_statements(text.replace("\r\n", "\n") + "\n"))


def _statements(text: str) -> Iterator[str]:
    """Give one statement after the other; statements in one line stay together."""
    words: list[str] = []
    only_strings, depth, at = True, 0, 0
    for match in _PYTHON.finditer(text):
        between, word, kind = text[at : match.start()], match.group(), match.lastgroup
        at = match.end()
        if not words:
            words.append(between[: len(between) - len(between.lstrip())])
        words += between.split()
        is_prose = kind != "string" or not set("bBfF") & set(word.partition(word[-1])[0])
        only_strings &= is_prose and not between.strip() and kind not in {"open", "close"}
        depth += {"open": 1, "close": -1}.get(str(kind), 0)
        if kind in {"string", "open", "close"}:
            words.append(word)
        elif kind == "end" and depth == 0:
            if len(words) > 1 and not only_strings:
                yield words[0] + " ".join(words[1:])
            words, only_strings = [], True


def cpp_code(text: str) -> str:
    """Give CUDA or C++ without comments, but for one that declares a kernel (`spmark.impls.runtime.kernelfile`).

    White space outside of strings becomes one space, and only directives have lines of their own.
    """
    lines: list[list[str]] = [[]]
    for words in _lines(text.replace("\r\n", "\n") + "\n"):
        if words and words[0].startswith("#"):
            lines += [words, []]
        else:
            lines[-1] += words
    return "\n".join(" ".join(words) for words in lines if words)


def _lines(text: str) -> Iterator[list[str]]:
    """Give the words of one line after the other; a line and its continuation count as one."""
    words: list[str] = []
    at = 0
    for match in _CPP.finditer(text):
        words += text[at : match.start()].split()
        at = match.end()
        if match["end"]:
            yield words
            words = []
        elif not match["left_out"]:
            words.append(match.group())
