"""A small folder of published records whose candidates a manifest names, and the archive of these candidates."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

from archives import tarred

NAMES = ("h200/first/candidates.jsonl.gz", "h200/second/candidates.jsonl.xz", "h200/third/candidates.jsonl.gz")
FILES = {name: gzip.compress(name.encode() * 50 * (at + 1), mtime=0) for at, name in enumerate(NAMES)}
ARCHIVE = tarred(FILES, "w")


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def manifest(**changes: Any) -> dict[str, Any]:
    """Give a manifest as JSON has it."""
    return {
        "schema_version": 1,
        "tag": "candidates-1",
        "archive": "some.tar",
        "url": None,
        "bytes": len(ARCHIVE),
        "sha256": digest(ARCHIVE),
        "commit": None,
        "files": [{"path": path, "bytes": len(text), "sha256": digest(text)} for path, text in FILES.items()],
    } | changes


def write_manifest(folder: Path, **changes: Any) -> Path:
    """Write a manifest into a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "candidates.json").write_text(json.dumps(manifest(**changes)))
    return folder


def held(folder: Path) -> dict[str, bytes]:
    """Give every file of a folder but the manifest, temporary ones included."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != "candidates.json"]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths if ".git" not in path.parts}
