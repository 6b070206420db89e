"""Where the matrices of the packaged sweeps come from: ``origins.tsv``, a line for each.

A matrix's identity is its origin, ``source/name``. The list also has the ids under which records may know the same
matrix, its counts, the hash of its pattern, its licence and where it is downloaded. `scripts/origins.py` computes
counts and hashes. A line without a hash is of a matrix that nobody has hashed yet: its counts, if any, are what its
publisher states, and the first fetch on a machine keeps the hash.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from spmark.datasets.source import Facts
    from spmark.records.schema import MatrixSource

LIST = "origins.tsv"


@dataclass(frozen=True)
class Origin:
    """A line of the list."""

    id: str
    """``source/name``."""
    aliases: tuple[str, ...]
    """Other ids of the same matrix, the oldest last."""
    facts: Facts | None
    """None where the publisher does not state all counts."""
    pattern: str
    """SHA-256 of the pattern, as `spmark.impls.core.problem.Csr.hash` gives it; empty where it is not known yet."""
    licence: str
    url: str
    """What is downloaded."""

    @classmethod
    def of(cls, line: Mapping[str, str]) -> Self:
        """Make it out of a line's columns."""
        from spmark.datasets.source import Facts

        counts = [line[each] for each in ("rows", "cols", "nnz")]
        facts = Facts(*map(int, counts)) if all(counts) else None
        aliases = tuple(line["aliases"].split())
        return cls(line["origin"], aliases, facts, line["pattern_sha256"], line["licence"], line["url"])

    @property
    def source(self) -> str:
        """The source that loads it."""
        return self.id.partition("/")[0]

    @property
    def name(self) -> str:
        """Its name within the source."""
        return self.id.partition("/")[2]


@cache
def origins() -> Mapping[str, Origin]:
    """Give every listed matrix by its id."""
    text = (files("spmark.datasets") / LIST).read_text(encoding="utf-8")
    lines = csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
    return {line["origin"]: Origin.of(line) for line in lines}


@cache
def by_alias() -> Mapping[str, Origin]:
    """Give every listed matrix by each of its aliases."""
    return {alias: origin for origin in origins().values() for alias in origin.aliases}


def find_origin(source: str, name: str) -> Origin | None:
    """Give the listed matrix that is known as ``source/name``, or None."""
    key = f"{source}/{name}"
    return origins().get(key) or by_alias().get(key)


def listed(source: str) -> tuple[str, ...]:
    """Give the names of a source's listed matrices, in the list's order."""
    return tuple(origin.name for origin in origins().values() if origin.source == source)


def other_ids(matrix: MatrixSource) -> Iterator[str]:
    """Give the other ids under which records may know a matrix, in its orientation, the oldest last."""
    if (origin := find_origin(matrix.source, matrix.name)) is not None:
        own = f"{matrix.source}/{matrix.name}"
        yield from (one + matrix.id.removeprefix(own) for one in (origin.id, *origin.aliases) if one != own)


def oldest_id(matrix: MatrixSource) -> str:
    """Give the first id that a matrix had: what is drawn or kept under it stays what it was."""
    return [matrix.id, *other_ids(matrix)][-1]
