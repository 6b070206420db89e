"""Archives in memory, the same bytes for the same members."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Mapping


def zipped(members: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        for name, content in members.items():
            file.writestr(zipfile.ZipInfo(name), content, method)
    return out.getvalue()


def tarred(
    members: Mapping[str, bytes], mode: str = "w:gz", form: int = tarfile.PAX_FORMAT, link: str | None = None
) -> bytes:
    """Pack members and, where ``link`` is given, a symbolic link to it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, format=form) as file:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
        if link:
            info = tarfile.TarInfo("link.mtx")
            info.type, info.linkname = tarfile.SYMTYPE, link
            file.addfile(info)
    return out.getvalue()
