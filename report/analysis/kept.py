"""Digests of rows and of the report's code, and derived columns that are kept from one report to the next.

What a report says follows from its rows and from the code alone. Equal digests thus mean equal pages.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from spmark.impls.core.files import cache_root, keep_latest, mark_used, read_sealed, write_sealed
from spmark.report.analysis.cases import derive

_LIMIT_BYTES = 64 << 20
_PACKAGES = ("jinja2", "matplotlib", "numpy", "pandas", "scipy")
"""What pages are made with: another version may draw the same rows differently."""
_SKIPPED = ("__pycache__", "reference")
"""Folders of the report that no page is made of, but for the tiles of a calibration."""


@dataclass(frozen=True, eq=False)
class Derivation:
    """What follows from a frame: small beside the frame, so that another process can send it back."""

    digest: str
    """Of the frame, as `digest_of` gives it."""
    columns: dict[str, pd.Series[Any]]
    """What `derive` adds to the frame, or changes in it."""


def derived(frame: pd.DataFrame, baseline: str | None) -> Derivation:
    """Derive as `derive` does: read from the cache where an earlier call had equal rows, else made and kept."""
    digest = digest_of(frame)
    path = cache_root() / "derived" / f"{digest_of_texts([code(), repr(baseline), digest])}.npz"
    content = read_sealed(path)
    columns = _read(content, frame.index) if content is not None else None
    if columns is not None:
        mark_used(path)
        return Derivation(digest, columns)
    made = derive(frame, baseline)
    changed = [name for name in made if name not in frame or made[name].dtype != frame[name].dtype]
    columns = {str(name): made[name] for name in dict.fromkeys([*changed, "matrix_kind"])}
    write_sealed(path, _written(columns))
    keep_latest(path.parent, _LIMIT_BYTES)
    return Derivation(digest, columns)


def digest_of_texts(texts: Iterable[str]) -> str:
    """Give the digest of texts in their order."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def digest_of(frame: pd.DataFrame) -> str:
    """Give the digest of a frame's values in their order. O(n) for n values."""
    digest = hashlib.sha256()
    shown: dict[int, bytes] = {}
    for name in frame:
        column = frame[name]
        digest.update(f"\0{name}\0".encode())
        if column.dtype.kind == "M":
            column = column.astype("int64")
        if column.dtype.kind in "biuf":
            digest.update(column.to_numpy().tobytes())
            continue
        for value in column:
            if isinstance(value, np.ndarray):
                digest.update(b"%d\0" % value.size + value.tobytes())
            elif isinstance(value, str):
                digest.update(value.encode() + b"\0")
            else:
                # Many rows share one environment, which the frame keeps alive: its id is no other value's.
                if id(value) not in shown:
                    shown[id(value)] = repr(value).encode() + b"\0"
                digest.update(shown[id(value)])
    return digest.hexdigest()


@cache
def code() -> str:
    """Give the digest of the code and data that pages are made of, and of the packages that they are made with."""
    digest = hashlib.sha256(" ".join(f"{name} {version(name)}" for name in _PACKAGES).encode())
    report, core = (Path(str(files(name))) for name in ("spmark.report", "spmark.impls.core"))
    for root in (report, core, report / "reference/tiles"):
        for path in sorted(root.rglob("*")) if root.is_dir() else ():
            inside = path.relative_to(root)
            if path.is_file() and not set(_SKIPPED).intersection(inside.parts):
                digest.update(f"{inside.as_posix()}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _written(columns: Mapping[str, pd.Series[Any]]) -> bytes:
    """Give columns as NumPy's npz: numbers as they are, texts as text, and the type of each column."""
    arrays: dict[str, Any] = {}
    for name, values in columns.items():
        arrays[name] = np.array(values.tolist(), str) if values.dtype.kind == "O" else values.to_numpy()
        arrays[f"{name}.dtype"] = np.array(str(values.dtype))
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **arrays)
    return file.getvalue()


def _read(content: bytes, index: pd.Index) -> dict[str, pd.Series[Any]] | None:
    """Give the columns back; None where the content is not what `_written` writes for as many rows."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            names = [name for name in arrays.files if not name.endswith(".dtype")]
            return {n: pd.Series(arrays[n].tolist(), index, str(arrays[f"{n}.dtype"])) for n in names}
    except (ValueError, KeyError, TypeError, EOFError, OSError, zipfile.BadZipFile):
        return None
