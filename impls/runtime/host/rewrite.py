"""Turn what of CUDA's language a C++ macro cannot express into C++: ``__shared__`` declarations, ``__noinline__``.

Works on preprocessed text, so that declarations in every header are seen and macros in their dimensions are resolved.
"""

from __future__ import annotations

import re

_ALIGNMENT = (
    r"(?:\balignas\s*\((?P<{0}standard>[^()]*(?:\([^()]*\)[^()]*)*)\)"
    r"|__attribute__\s*\(\(aligned\((?P<{0}gnu>[^()]*)\)\)\))"
)
_ALIGNED = re.compile(_ALIGNMENT.format(""))
# CUDA takes an alignment at the very front, and behind __shared__.
_DECLARATION = re.compile(
    rf"(?:{_ALIGNMENT.format('front_')}\s*)?(?P<extern>\bextern\s+)?\b__shared__\b"
    r"(?P<declarator>[^;{}]*(?:\{[^;{}]*\}[^;{}]*)*);"
)
_VARIABLE = re.compile(r"^(?P<type>.*[\s>&*])(?P<name>[A-Za-z_]\w*)\s*(?P<dimensions>(?:\[.*\])?)$", re.DOTALL)
# Headers of GCC have the same word inside of __attribute__((...)), where it is right already.
_NOINLINE = re.compile(r"(?P<before>[(,]\s*)?\b__noinline__\b")
_BRACKETS = re.compile(r"<[^<>]*>|\([^()]*\)|\[[^\[\]]*\]|\{[^{}]*\}")
_MARKER = re.compile(r'^# (?P<line>\d+) "(?P<file>[^"]*)"', re.MULTILINE)


def rewrite(text: str) -> str:
    """Rewrite every shared variable and every ``__noinline__`` of a preprocessed source.

    ``__shared__ T name[D];`` becomes a reference to storage of its own that the host ring poisons and guards.
    ``extern __shared__ T name[];`` becomes a pointer to the launch's dynamic shared memory. Line numbers stay.

    Parameters
    ----------
    text : str
        Output of ``g++ -E``, line markers included.

    Raises
    ------
    ValueError
        A declaration has another form (several variables, an initialiser); the message names file and line.
    """
    text = _NOINLINE.sub(lambda match: match[0] if match["before"] else "__attribute__((noinline))", text)
    return _DECLARATION.sub(lambda match: _rewritten(match, text), text)


def _rewritten(match: re.Match[str], text: str) -> str:
    """Give the host's declaration for one of CUDA's."""
    declarator = match["declarator"]
    alignments = [aligned["standard"] or aligned["gnu"] for aligned in _ALIGNED.finditer(match[0])]
    variable = _VARIABLE.match(_ALIGNED.sub(" ", declarator).strip())
    if variable is None or set(",=") & set(_without_brackets(declarator)):
        raise ValueError(
            f"{_position(text, match.start())}: expected one shared variable without initialiser in a declaration, "
            f"`__shared__ TYPE NAME[SIZE];`, found `{match[0]}`"
        )
    type_, name, dimensions = variable["type"].strip(), variable["name"], variable["dimensions"]
    lines = "\n" * match[0].count("\n")
    if match["extern"]:
        return f"{type_}* const {name} = static_cast<{type_}*>(::simt::dynamic_shared());{lines}"
    shared, storage = f"{name}_shared_type", f"{name}_shared_storage"
    alignment = "".join(f", static_cast<size_t>({value})" for value in alignments)
    return (
        f"typedef {type_} {shared}{dimensions}; "
        f'static ::simt::StaticShared {storage}("{name}", sizeof({shared}), '
        f"::simt::strictest({{alignof({shared}){alignment}}})); "
        f"{shared}& {name} = *static_cast<{shared}*>({storage}.address());{lines}"
    )


def _without_brackets(declarator: str) -> str:
    """Leave out what stands in brackets of any kind."""
    while (shorter := _BRACKETS.sub("", declarator)) != declarator:
        declarator = shorter
    return declarator


def _position(text: str, offset: int) -> str:
    """Give ``file:line`` of an offset into preprocessed text."""
    markers = list(_MARKER.finditer(text, 0, offset))
    if not markers:
        return "line 1"
    line = int(markers[-1]["line"]) + text.count("\n", markers[-1].end(), offset) - 1
    return f"{markers[-1]['file']}:{line}"
