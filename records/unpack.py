"""Lines of an archive that may be damaged: those before the damage, and a message about the rest.

New archives of published records are bzip2, by which they take a third less than as gzip, and less than as xz. What
searches measured and the facts of studies are xz, which unpacks five times as fast as bzip2 and takes about as much
there, or less. Gzip is read, too.

bzip2 gives text whose checksum is right. In gzip and xz one checksum stands at the end: damage may show only some lines
after it began.
"""

from __future__ import annotations

import bz2
import logging
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

from spmark.impls.core.errors import RecordError

_GZIP = 31
"""Window bits by which zlib expects the header and the trailer of gzip."""
_XZ_MEMORY = 1 << 27
"""Bytes: twice what xz's highest level needs; the beginning of an archive may ask for 4 GB."""
LONGEST_LINE = 1 << 26
"""Bytes; a few kilobytes of an archive may hold more zeros than fit into memory."""
_FREE, _FOLD = 1 << 24, 1 << 10
"""Bytes of text that any archive may hold, and how many more for each of its bytes: records take a 50th at least."""
_log = logging.getLogger(__name__)


class _DamageError(Exception):
    """The rest of an archive cannot be unpacked."""


def unpacked_lines(file: IO[bytes], path: Path) -> Iterator[bytes]:
    """Walk over the lines of an archive, with a warning where it is damaged or cut off.

    Parameters
    ----------
    file : binary file
        The archive; archives one after the other count as one.
    path : Path
        Name of the archive in messages; one of `ARCHIVES` ends it.

    Raises
    ------
    RecordError
        No line of the archive can be read.
    """
    begun, number, damage = bytearray(), 0, ""
    try:
        for content in _contents(file, path.suffix):
            *lines, last = content.split(b"\n")
            for line in lines:
                number += 1
                yield bytes(begun) + line + b"\n"
                begun.clear()
            begun += last
            if len(begun) > LONGEST_LINE:
                begun.clear()
                raise _DamageError(f"a line of more than {LONGEST_LINE:,} bytes")
    except _DamageError as error:
        damage = str(error)
    if begun:
        yield bytes(begun)
    if damage and not (number or begun):
        raise RecordError(
            f"{path}: cannot be read: expected lines in an archive of kind {path.suffix}, found a fault before the "
            f"first one ({damage}); take the archive from a copy"
        )
    if damage:
        _log.warning(
            "%s: the archive is damaged after %d lines (%s): the rest cannot be read; take it from a copy",
            path, number, damage,
        )  # fmt: skip


def unpacked(path: Path) -> bytes:
    """Give the whole text of an archive.

    Raises
    ------
    RecordError
        The archive is damaged or cut off.
    OSError
        The file cannot be read.
    """
    with path.open("rb") as file:
        try:
            return b"".join(_contents(file, path.suffix))
        except _DamageError as error:
            raise RecordError(
                f"{path}: expected a whole archive, found damage ({error}); take the archive from a copy"
            ) from error


def beginning(path: Path, size: int) -> bytes:
    """Give the first ``size`` bytes of a file, unpacked; of a damaged archive, those before the damage.

    Raises
    ------
    OSError
        The file cannot be read.
    """
    with path.open("rb") as file:
        if path.suffix not in ARCHIVES:
            return file.read(size)
        found = bytearray()
        with suppress(_DamageError):
            for content in _contents(file, path.suffix):
                found += content
                if len(found) >= size:
                    break
        return bytes(found[:size])


def _contents(file: IO[bytes], kind: str) -> Iterator[bytes]:
    """Give the text of archives that stand one after the other, step by step up to the damage.

    Zeros between archives and after the last one are padding.
    """
    make, step = _UNPACKERS[kind]
    unpacker, begun, size, unchecked = make(), False, 0, b""
    for packed in iter(partial(file.read, step), b""):
        left = packed
        while left := left if begun else left.lstrip(b"\0"):
            begun = True
            before: Any = unpacker.copy() if kind == ".gz" else None
            try:
                content = unpacker.decompress(left)
            except (OSError, zlib.error, lzma.LZMAError) as error:
                if kind != ".bz2":
                    yield unchecked
                with suppress(zlib.error):  # byte by byte up to the damage
                    yield from (before.decompress(left[at : at + 1]) for at in range(len(left) if before else 0))
                raise _DamageError(str(error)) from error
            yield unchecked
            unchecked, left, size = content, b"", size + len(content)
            if size > _FREE + _FOLD * file.tell():
                raise _DamageError(f"text of more than {_FOLD:,} times the archive's bytes")
            if unpacker.eof:
                left, unpacker, begun = unpacker.unused_data, make(), False
    yield unchecked
    if begun:
        raise _DamageError("it is cut off")


_UNPACKERS: Mapping[str, tuple[Callable[[], Any], int]] = {
    ".bz2": (bz2.BZ2Decompressor, 1 << 6),
    ".gz": (partial(zlib.decompressobj, _GZIP), 1 << 12),
    ".xz": (partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, _XZ_MEMORY), 1 << 6),
}
"""What unpacks an archive, and in steps of how many packed bytes.

A step of bzip2 or xz in which damage shows is lost. Steps of bzip2 are so short that no two blocks of records end in
one, and a step's text is given once the next step has found its block's checksum right: damage mixes the lines of a
whole block.
"""
ARCHIVES = tuple(_UNPACKERS)
"""How names of archives end."""
