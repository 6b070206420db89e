"""Bringing the matrices of sweeps to a machine: what has to be downloaded, how much that is, and several at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from spmark.datasets.cache import Cache, stated_bytes
from spmark.datasets.mirror import at_origin, has_entry
from spmark.datasets.sources.downloaded import DownloadedSource
from spmark.datasets.sources.table import find_source
from spmark.impls.core.errors import DatasetError
from spmark.records.schema import MatrixSource

WORKERS = 4
"""Downloads at a time."""


@dataclass(frozen=True)
class Download:
    """A file that some matrices need."""

    url: str
    place: str
    """As `Cache.fetch` takes it."""


def needed(matrices: Iterable[MatrixSource], cache: Cache) -> Mapping[str, Download | str]:
    """Give for each matrix, by its id, the download that it needs, or where it comes from without one.

    Raises
    ------
    DatasetError
        A source has no such matrix, or the mirror cannot be read.
    """
    return {matrix.id: _needed(at_origin(matrix, cache.mirror), cache) for matrix in matrices}


def _needed(matrix: MatrixSource, cache: Cache) -> Download | str:
    source = find_source(matrix.source)
    file = source.download(matrix.name)
    if file is None and not source.network:
        return "here"
    if has_entry(cache.mirror, source, matrix.name):
        return "mirror"
    if cache.has(source.name, matrix.name, matrix.args):
        return "cache"
    if file is None:
        return "its source"
    if isinstance(source, DownloadedSource) and (copy := source.package_copy(matrix.name)) is not None:
        return str(copy)
    return Download(*file)


def sizes(downloads: Iterable[Download], cache: Cache) -> Mapping[Download, int | str]:
    """Give the bytes of each download, as its server states them, or why they are not known. Asks several at a time."""
    wanted = list(dict.fromkeys(downloads))

    def size(one: Download) -> int | str:
        path = cache.root / "downloads" / one.place
        return path.stat().st_size if path.is_file() else stated_bytes(one.url)

    with ThreadPoolExecutor(WORKERS) as pool:
        return dict(zip(wanted, pool.map(size, wanted), strict=True))


def bring(
    downloads: Iterable[Download], cache: Cache, done: Callable[[Download], None] = lambda one: None
) -> Mapping[Download, str]:
    """Download files, several at a time; a part that is there is gone on with.

    Parameters
    ----------
    downloads : iterable of Download
    cache : Cache
    done : callable
        Is called for each that has ended.

    Returns
    -------
    dict
        Why a file cannot be had; nothing of those that are there now.
    """
    wanted: Sequence[Download] = list(dict.fromkeys(downloads))

    def fetched(one: Download) -> str:
        try:
            cache.fetch(one.url, one.place)
        except DatasetError as error:
            return str(error)
        finally:
            done(one)
        return ""

    with ThreadPoolExecutor(WORKERS) as pool:
        reasons = dict(zip(wanted, pool.map(fetched, wanted), strict=True))
    return {one: reason for one, reason in reasons.items() if reason}
