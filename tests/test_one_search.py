"""Every search compares candidates in `impls/tuning`: what times, compiles, ties or keeps them stands nowhere else.

A benchmark whose systems are tuned by unequal tuners compares tuners. Names are read from the syntax tree of every file
of `impls/`; `tuning/` and `runtime/` own what is forbidden elsewhere.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OWNERS = ("tuning/", "runtime/")
CUDA, FILES, POOLS = "spmark.impls.runtime.cudalab", "spmark.impls.core.files", "concurrent.futures"
FORBIDDEN = {
    "clocks": re.compile(
        r"time\.(time|perf_counter|process_time)(_ns)?|timeit(\..*)?|.*get_elapsed_time"
        r"|spmark\.impls\.runtime\.(timing|cudalab)\.(\w*Stopwatch|take_samples)"
    ),
    "pools": re.compile(r"concurrent\.futures(\.\w*Executor)?|multiprocessing(\..*)?|joblib(\..*)?"),
    "ties": re.compile(r"_?(TIED?|TIES|FAR|FINALISTS|CLEARLY_WORSE)|ties|spmark\.impls\.runtime\.timing\.half_width"),
    "cache writes": re.compile(r"spmark\.impls\.core\.files\.(write_sealed|whole)"),
}
"""What each kind of thing is called where it is imported, defined or read."""
EXCEPTIONS = {
    "core/interfaces.py": {"clocks": "`Built.phase`, by which all building is accounted for"},
    "core/machine.py": {"pools": "threads for conversions and compilers, which are owned elsewhere"},
    "studies/stile/gpu.py": {"clocks": "measures the costs of single tiles, from which the cost model is fitted"},
    "studies/liteform/published.py": {"clocks": "seconds of training and predicting: a result of a study"},
    "studies/dash/training.py": {"clocks": "seconds of epochs: a result of a study"},
    "studies/dash/compare.py": {"clocks": "seconds of training and scoring: a result of a study"},
}
"""By file: which kind it may name, and why."""


def sources() -> Iterator[tuple[str, Path]]:
    for folder, root in (("impls", ROOT / "impls"), ("studies", ROOT)):
        for path in sorted((ROOT / folder).rglob("*.py")):
            inside = path.relative_to(root).as_posix()
            if not inside.startswith(OWNERS):
                yield inside, path


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Give what a file imports, reads or defines; what a race is asked (``timed.ties(best)``) is no rule of its own."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                yield from ((node.lineno, alias.name) for alias in aliases)
            case ast.ImportFrom(module=module, names=aliases):
                yield from ((node.lineno, f"{module}.{alias.name}") for alias in aliases)
            case ast.Attribute(value=ast.Name(id=owner), attr=name):
                yield node.lineno, f"{owner}.{name}"
            case ast.Name(id=name) | ast.FunctionDef(name=name):
                yield node.lineno, name
            case _:
                pass


def found(kind: str, text: str) -> list[str]:
    return [f"{line}: {name}" for line, name in names(ast.parse(text)) if FORBIDDEN[kind].fullmatch(name)]


@pytest.mark.parametrize("kind", FORBIDDEN)
def test_searches_own_nothing_that_the_race_has(kind: str) -> None:
    broken = []
    for inside, path in sources():
        if kind not in EXCEPTIONS.get(inside, {}):
            broken += [f"impls/{inside}:{place}" for place in found(kind, path.read_text(encoding="utf-8"))]
    assert not broken, f"{kind} stand in impls/tuning and impls/runtime:\n  " + "\n  ".join(broken)


def test_every_exception_is_needed() -> None:
    files = dict(sources())
    for inside, kinds in EXCEPTIONS.items():
        for kind in kinds:
            assert found(kind, files[inside].read_text(encoding="utf-8")), f"impls/{inside} names no {kind}"
