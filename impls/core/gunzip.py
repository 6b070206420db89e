"""Lines of a gzip archive that may be damaged: everything before the damage, and a message about the rest."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from spmark.impls.core.errors import RecordError

_GZIP = 31
"""Window bits by which zlib expects the header and the trailer of gzip."""
_BLOCK = 1 << 14
LONGEST_LINE = 1 << 26
"""Bytes; a few kilobytes of an archive may hold more zeros than fit into memory."""
_log = logging.getLogger(__name__)


def gunzipped_lines(file: IO[bytes], path: Path) -> Iterator[bytes]:
    """Walk over the lines of an archive, with a warning where it is damaged or cut off.

    Parameters
    ----------
    file : binary file
        The archive; archives one after the other count as one.
    path : Path
        Name of the archive in messages.

    Raises
    ------
    RecordError
        No part of the archive can be read.
    """
    rest, whole, number = b"", "", 0
    try:
        for content in _content(file):
            *lines, rest = (rest + content).split(b"\n")
            for line in lines:
                number += 1
                yield line + b"\n"
            if len(rest) > LONGEST_LINE:
                rest = b""
                raise zlib.error(f"a line of more than {LONGEST_LINE:,} bytes")
    except (zlib.error, EOFError) as error:
        whole = str(error)
    if rest:
        yield rest
    if whole and not (number or rest):
        raise RecordError(f"{path}: cannot be read: expected a gzip archive, found something else ({whole})")
    if whole:
        _log.warning(
            "%s: the archive is damaged after %d lines (%s): the rest cannot be read; take it from a copy",
            path, number, whole,
        )  # fmt: skip


def _content(file: IO[bytes]) -> Iterator[bytes]:
    """Unpack block by block; a damaged block is unpacked byte by byte up to the damage."""
    unpacker = zlib.decompressobj(_GZIP)
    begun = False
    while block := file.read(_BLOCK):
        while block:
            begun = True
            before = unpacker.copy()
            try:
                yield unpacker.decompress(block)
            except zlib.error:
                for at in range(len(block)):
                    yield before.decompress(block[at : at + 1])
                raise
            block = unpacker.unused_data
            if unpacker.eof:
                unpacker, begun = zlib.decompressobj(_GZIP), False
                block = block.lstrip(b"\0")  # padding between archives and after the last
    if begun:
        raise EOFError("it is cut off")
