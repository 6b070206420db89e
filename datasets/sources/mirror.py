"""Any matrix of the local mirror, by ``category/name`` or plain name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from spmark.datasets.cache import Cache
from spmark.datasets.mirror import Entry, read_entry, read_manifest
from spmark.datasets.source import Args, Facts, RawMatrix, known, only
from spmark.impls.core.errors import DatasetError


class Mirror:
    """The folder that ``SPMARK_MIRROR`` names."""

    name: ClassVar[str] = "mirror"
    title: ClassVar[str] = "local mirror (SPMARK_MIRROR)"
    licence: ClassVar[str] = "per matrix, in its MANIFEST.tsv"
    citation: ClassVar[str] = "per matrix, in its MANIFEST.tsv"
    url: ClassVar[str] = ""
    network: ClassVar[bool] = False
    cached: ClassVar[bool] = False

    def names(self, cache: Cache) -> Sequence[str]:
        """List ``category/name`` of every matrix; nothing without a mirror."""
        return [entry.id for entry in read_manifest(cache.mirror)] if cache.mirror else []

    def facts(self, name: str) -> Facts | None:
        """Know nothing: reading checks the manifest's counts."""
        return None

    def load(self, name: str, args: Args, cache: Cache) -> RawMatrix:
        """Read a matrix. Takes no arguments."""
        only(f"mirror/{name}", args)
        if cache.mirror is None:
            raise DatasetError(
                f"mirror/{name}: expected SPMARK_MIRROR to name a folder with MANIFEST.tsv, found it unset"
            )
        return read_entry(self._entry(name, cache.mirror))

    def _entry(self, name: str, mirror: Path) -> Entry:
        entries = read_manifest(mirror)
        matches = [entry for entry in entries if name in (entry.id, entry.name)]
        if len(matches) > 1:
            raise DatasetError(f"mirror/{name}: expected one matrix, found {', '.join(entry.id for entry in matches)}")
        if not matches:
            known(f"mirror {mirror}", name, [key for entry in entries for key in (entry.name, entry.id)])
        return matches[0]
