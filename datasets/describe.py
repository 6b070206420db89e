"""What there is to load, for people: a row for every matrix that a source names, or for a source of files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spmark.datasets.cache import Cache
from spmark.datasets.mirror import read_manifest
from spmark.datasets.source import Facts
from spmark.datasets.sources.table import SOURCES, find_source


@dataclass(frozen=True)
class DatasetRow:
    """A line of ``spmark list datasets``."""

    source: str
    title: str
    name: str
    """Empty where names are paths or labels."""
    facts: Facts | None
    licence: str
    citation: str
    url: str
    network: bool


def dataset_rows(cache: Cache) -> Iterator[DatasetRow]:
    """List every source's matrices, in the table's order.

    Raises
    ------
    DatasetError
        The mirror's manifest cannot be read.
    """
    for key in SOURCES:
        source = find_source(key)
        if key == "mirror" and cache.mirror is not None:
            for entry in read_manifest(cache.mirror):
                origin = f"{entry.origin}; {entry.note}"
                yield DatasetRow(
                    key, source.title, entry.id, entry.facts, entry.licence, origin, source.url, source.network
                )
            continue
        for name in source.names(cache) or ("",):
            facts = source.facts(name)
            yield DatasetRow(
                key, source.title, name, facts, source.licence, source.citation, source.url, source.network
            )
