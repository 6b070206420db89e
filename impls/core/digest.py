"""Digests of source folders: what code a record or a cached binary came from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

_SKIPPED = ("__pycache__", ".pyc", "README.md")


def files_digest(files: Iterable[Path], root: Path) -> str:
    """Give sixteen hex digits over the names (relative to ``root``) and the contents of ``files``, order ignored."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.relative_to(root).as_posix()}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@cache
def implementation_version(package: str) -> str:
    """Digest the code that a result of the implementation in ``impls/<package>`` depends on.

    That is its folder, and core, formats, kernels and runtime. Computed once a process.
    """
    root = Path(__file__).parents[1]
    folders = {"core", "formats", "kernels", "runtime", package}
    files = (
        path
        for folder in folders
        for path in (root / folder).rglob("*")
        if path.is_file() and not any(part in str(path.relative_to(root)) for part in _SKIPPED)
    )
    return files_digest(files, root)
