"""The index of the SuiteSparse Matrix Collection: which matrices meet a condition, or stand in a published list.

The index is one file, ``ssstats.csv``: a count, a date, and a line for each matrix. It is fetched once and kept; a
mirror may hold it as ``suitesparse/ssstats.csv``.
"""

from __future__ import annotations

import csv
import functools
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spmark.datasets.cache import Cache
from spmark.datasets.published import read_table
from spmark.datasets.source import Facts
from spmark.impls.core.errors import DatasetError, none_of
from spmark.impls.core.files import Stamp, is_file, stamp, whole
from spmark.impls.core.untrusted import reading

URL = "https://sparse.tamu.edu/files/ssstats.csv"
_PLACE = "suitesparse/ssstats.csv"
_COLUMNS: Mapping[str, Callable[[str], int | float | str]] = {
    "group": str, "name": str, "rows": int, "cols": int, "nnz": int, "real": int, "binary": int, "nd": int,
    "posdef": int, "pattern_symmetry": float, "numerical_symmetry": float, "kind": str,
}  # fmt: skip
"""Columns of a line in order; ``nnz`` counts entries that are not zero. Newer indexes have a further one."""
_COMPARED: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, "<=": operator.le, "!=": operator.ne, ">": operator.gt, "<": operator.lt, "=": operator.eq,
}  # fmt: skip
_TERM = re.compile(r"\s*(\w+)\s*(>=|<=|!=|>|<|=)\s*(?:'([^']*)'|([0-9.eE+-]+))\s*")
Line = Mapping[str, int | float | str]


@dataclass(frozen=True)
class Index:
    """The collection at a date."""

    date: str
    """As the collection writes it."""
    lines: Sequence[Line]


def read_index(cache: Cache) -> Index:
    """Read the index out of the mirror or the cache, else fetch it.

    Raises
    ------
    DatasetError
        The index cannot be fetched, or is something else.
    """
    offline = f"set SPMARK_MIRROR to a folder that holds {_PLACE}"
    mirrored = cache.mirror / _PLACE if cache.mirror else None
    if mirrored is not None and is_file(mirrored):
        return _read(mirrored)
    return _read(cache.fetch(URL, _PLACE, offline=offline))


def counts_here(cache: Cache) -> Mapping[str, Facts]:
    """Give the counts of each matrix by ``Group/Name``, where the mirror or the cache has the index; fetches nothing.

    Raises
    ------
    DatasetError
        The index is damaged.
    """
    places = (*([cache.mirror / _PLACE] if cache.mirror else []), _kept(cache))
    found = next(filter(is_file, places), None)
    return {} if found is None else _counts(found, stamp(found))


@functools.cache
def _counts(path: Path, _: Stamp | None) -> Mapping[str, Facts]:
    return {
        f"{line['group']}/{line['name']}": Facts(int(line["rows"]), int(line["cols"]), int(line["nnz"]))
        for line in _read(path).lines
    }


def _kept(cache: Cache) -> Path:
    return cache.root / "downloads" / _PLACE


def _read(path: Path) -> Index:
    with reading(path, "the index of the SuiteSparse collection", remedy="delete it to fetch it again"):
        count, date, *rows = path.read_text(encoding="utf-8").splitlines()
        lines = [
            {name: read(text) for (name, read), text in zip(_COLUMNS.items(), row, strict=False)}
            for row in csv.reader(rows)
        ]
        if len(lines) != int(count) or any(len(line) != len(_COLUMNS) for line in lines):
            raise DatasetError(f"{path}: expected {int(count):,} complete lines, found {len(lines):,}: truncated?")
    return Index(date.strip(), lines)


def copy_index(cache: Cache, mirror: Path) -> None:
    """Put the index into a mirror, if the cache has it: a sweep's condition then needs no network."""
    if is_file(kept := _kept(cache)):
        with whole(mirror / _PLACE) as part:
            part.write_bytes(kept.read_bytes())


def matching(lines: Iterable[Line], condition: str) -> list[Line]:
    """Give the lines that meet a condition such as ``rows >= 2000 and nnz < 5e7 and kind = 'graph'``.

    A text is met where it is a part of the column: graphs are ``undirected graph``, ``directed weighted graph``, ...

    Raises
    ------
    DatasetError
        The condition is no list of comparisons that are joined by ``and``.
    """
    terms = [_term(part, condition) for part in re.split(r"\band\b(?=(?:[^']*'[^']*')*[^']*$)", condition)]
    return [line for line in lines if all(met(line) for met in terms)]


def _term(text: str, condition: str) -> Callable[[Line], bool]:
    match = _TERM.fullmatch(text)
    if match is None:
        raise DatasetError(
            f"{condition!r}: expected comparisons joined by and, such as rows >= 2000 and kind = 'graph', found "
            f"{text!r}"
        )
    column, sign, word, number = match.groups()
    if column not in _COLUMNS:
        raise DatasetError(f"{condition!r}: {none_of('a column', column, _COLUMNS)}")
    if (_COLUMNS[column] is str) != (word is not None) or (word is not None and sign not in ("=", "!=")):
        wanted = "= or != and a text in single quotes" if _COLUMNS[column] is str else "a number"
        raise DatasetError(f"{condition!r}: expected {column} to be compared with {wanted}, found {text.strip()!r}")
    if word is not None:
        return lambda line: (word in str(line[column])) == (sign == "=")
    with reading(condition, "numbers"):
        value = float(number)
    return lambda line: _COMPARED[sign](float(line[column]), value)


def listed_in(lines: Iterable[Line], table: str, cache: Cache) -> list[Line]:
    """Give the lines whose name stands in a published table, in the index's order.

    Tables have names without groups: of matrices of one name those count whose rows and columns are the table's.

    Raises
    ------
    DatasetError
        There is no such table, or it cannot be had.
    """
    rows = csv.DictReader(read_table(table, cache).splitlines())
    wanted = {(row["name"], int(row["num_rows"]), int(row["num_cols"])) for row in rows}
    return [line for line in lines if (line["name"], line["rows"], line["cols"]) in wanted]


def drawn(lines: Sequence[Line], count: int, seed: int) -> list[Line]:
    """Draw ``count`` lines without replacement, in the index's order; NumPy's version does not matter.

    Raises
    ------
    DatasetError
        There are fewer lines.
    """
    if count > len(lines):
        raise DatasetError(f"expected at least {count:,} matrices to draw from, found {len(lines):,}")
    keys = np.random.PCG64(seed).random_raw(len(lines))
    return [lines[place] for place in np.sort(np.argsort(keys, kind="stable")[:count])]
