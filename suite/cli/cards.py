"""What implementations say of themselves, read from their sources: importing them all takes seconds, and compiles."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.problem import Op
from spmark.impls.table import IMPLEMENTATIONS
from spmark.suite.plan.refusals import make

_ENUMS: dict[str, type[StrEnum]] = {"Op": Op, "DeviceKind": DeviceKind}


@dataclass(frozen=True)
class ImplementationCard:
    """An implementation in a line of a table."""

    ops: list[str]
    devices: list[str]
    about: str
    """First line of the implementation's docstring, or why it cannot be used here."""


def read_card(name: str) -> ImplementationCard:
    """Give the card of the implementation ``name``: from its source, or by import where need be.

    Raises
    ------
    SweepError
        There is no such implementation.
    """
    module, _, label = IMPLEMENTATIONS.get(name, ":").partition(":")
    if card := _from_source(module, label):
        return card
    made = make(name, {})
    if isinstance(made, str):
        return ImplementationCard([], [], made)
    return ImplementationCard(sorted(made.ops), sorted(made.devices), _first_line(type(made).__doc__))


def _from_source(module: str, label: str) -> ImplementationCard | None:
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):  # a module without a file, such as a stand-in of a test
        return None
    if spec is None or spec.origin is None:
        return None
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    if label not in classes:
        return None
    stated: dict[str, list[str]] = {}
    for kind in _line_of(classes, label):
        for node in kind.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                stated.setdefault(node.target.id, _members(node.value))
    if not (stated.get("ops") and stated.get("devices")):
        return None
    return ImplementationCard(stated["ops"], stated["devices"], _first_line(ast.get_docstring(classes[label])))


def _line_of(classes: dict[str, ast.ClassDef], label: str) -> Iterator[ast.ClassDef]:
    """Give a class and the bases of it that stand in the same file, the nearest first."""
    yield classes[label]
    for base in classes[label].bases:
        if isinstance(base, ast.Name) and base.id in classes:
            yield from _line_of(classes, base.id)


def _members(value: ast.expr) -> list[str]:
    """Give what ``frozenset(Op)`` or ``frozenset({Op.SPMM})`` holds, sorted; empty for any other expression."""
    if not (isinstance(value, ast.Call) and ast.unparse(value.func) == "frozenset" and len(value.args) == 1):
        return []
    (argument,) = value.args
    if isinstance(argument, ast.Name) and argument.id in _ENUMS:
        return sorted(_ENUMS[argument.id])
    if not isinstance(argument, ast.Set):
        return []
    names = [ast.unparse(item).partition(".") for item in argument.elts]
    if not all(kind in _ENUMS and member in _ENUMS[kind].__members__ for kind, _, member in names):
        return []
    return sorted(_ENUMS[kind][member] for kind, _, member in names)


def _first_line(text: str | None) -> str:
    return (text or "").partition("\n")[0]
