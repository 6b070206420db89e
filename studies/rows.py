"""Lines of the files that studies keep, and checks of such files before a model is trained on them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from spmark.impls.core.errors import DatasetError, UnsupportedError
from spmark.impls.core.extras import how_to_install
from spmark.impls.core.frozen import Frozen


class Row(Frozen):
    """A line of a study's file."""

    schema_version: Literal[1] = 1


def one_device(devices: Iterable[str], expected: str = "expected labels") -> str:
    """Give the device that all rows name.

    Parameters
    ----------
    devices : iterable of str
        One for each row.
    expected : str
        How the error begins.

    Raises
    ------
    DatasetError
        There are no rows, or rows of several devices.
    """
    names = sorted(set(devices))
    if len(names) != 1:
        raise DatasetError(f"{expected} of one device, found {', '.join(names) or 'none'}")
    return names[0]


def digest_of(paths: Sequence[Path]) -> str:
    """Give the SHA-256 over the contents of the files, one after the other."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def reason_of(error: BaseException) -> str:
    """Give the text of an error, or its type where the text is empty."""
    return str(error) or type(error).__name__


def untrained(library: str, error: ImportError) -> UnsupportedError:
    """Give the error for a library that training needs and that is not installed."""
    return UnsupportedError(f"expected {library} for training, found none ({error}): {how_to_install('study')}")
