"""One download: resumed after a drop, tried again with growing pauses, verified, and renamed into place when complete.

The part of an interrupted download stays beside its place (``.part``) with the server's validator. A later attempt goes
on from the part only if the server confirms that the file is still the same (RFC 9110, If-Range).
"""

from __future__ import annotations

import hashlib
import logging
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from spmark.impls.core.errors import DatasetError

if TYPE_CHECKING:
    import requests

ATTEMPTS = 5
_PAUSE_S = 0.5
_TIMEOUT_S = (10.0, 60.0)
_CHUNK_BYTES = 1 << 16
"""Most bytes that a drop costs: an incomplete chunk is not kept."""
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
MIRROR = "set SPMARK_MIRROR to a folder with MANIFEST.tsv that holds the matrix"
"""What helps without a network, for matrices."""
_log = logging.getLogger(__name__)


class _Dropped(Exception):
    """The attempt failed, but another one may succeed."""


def file_digest(path: Path) -> str:
    """Give the SHA-256 of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download(url: str, path: Path, sha256: str | None = None, pause_s: float = _PAUSE_S, offline: str = MIRROR) -> None:
    """Fetch ``url`` to ``path``, whose folder exists. The caller holds a lock on ``path``.

    Parameters
    ----------
    url : str
    path : Path
    sha256 : str, optional
        Hex digest that the content must have.
    pause_s : float
        Pause before the second attempt; each further pause is twice as long.
    offline : str
        What a person can do without a network, for the message.

    Raises
    ------
    DatasetError
        Says the URL, what was expected, what was found and what to do; no file stands at ``path`` then.
    """
    import requests  # a tenth of a second, which no command pays that downloads nothing

    part = path.with_name(path.name + ".part")
    last = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            _log.warning("%s: attempt %d of %d after: %s", url, attempt + 1, ATTEMPTS, last)
            time.sleep(pause_s * 2 ** (attempt - 1))
        try:
            _attempt(url, part)
            break
        except (
            _Dropped,
            requests.ConnectionError,
            requests.Timeout,
            requests.exceptions.ChunkedEncodingError,
        ) as error:
            cause = _first_cause(error)
            if isinstance(cause, socket.gaierror):  # another attempt would find no network either
                host = urlsplit(url).hostname
                raise _failed(url, path, offline, f"the name {host} cannot be resolved ({cause.strerror})") from error
            last = str(cause)
        except requests.RequestException as error:
            raise _failed(url, path, offline, str(error)) from error
        except OSError as error:
            raise DatasetError(f"{part}: {url} cannot be stored: {error.strerror}; make room and try again") from error
    else:
        raise _failed(url, path, offline, f"{ATTEMPTS} attempts failed, the last with: {last}")
    digest = file_digest(part)
    if sha256 not in (None, digest):
        part.unlink()
        raise _failed(url, path, offline, f"expected sha256 {sha256}, found {digest}")
    part.replace(path)
    _validator_file(part).unlink(missing_ok=True)


def _first_cause(error: BaseException) -> BaseException:
    """Give the first cause of an error of `requests`: the errors around it repeat the address, at length."""
    wrapped = error.args[0] if error.args else None
    cause = getattr(wrapped, "reason", None) or error.__cause__ or error.__context__
    return _first_cause(cause) if isinstance(cause, BaseException) else error


def _attempt(url: str, part: Path) -> None:
    import requests

    validator = _validator_file(part)
    have = part.stat().st_size if part.exists() and validator.exists() else 0
    headers = {"Accept-Encoding": "identity"}
    if have:
        headers |= {"Range": f"bytes={have}-", "If-Range": validator.read_text()}
    with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT_S) as reply:
        if reply.status_code == requests.codes.requested_range_not_satisfiable:
            part.unlink(missing_ok=True)
            raise _Dropped(f"the server holds no more than the {have:,} bytes that were there; starting over")
        if reply.status_code in _PASSING:
            raise _Dropped(f"HTTP {reply.status_code} {reply.reason}")
        reply.raise_for_status()
        resumed = reply.status_code == requests.codes.partial_content
        if resumed and not reply.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            part.unlink(missing_ok=True)
            raise _Dropped(f"expected a range from byte {have}, found {reply.headers.get('Content-Range')}")
        have = have if resumed else 0
        _note_validator(reply, validator)
        length = reply.headers.get("Content-Length")
        with part.open("ab" if resumed else "wb") as file:
            for chunk in reply.iter_content(_CHUNK_BYTES):
                file.write(chunk)
                have += len(chunk)
        expected = None if length is None else int(length) + (file_start(reply) if resumed else 0)
        if expected is not None and have != expected:
            raise _Dropped(f"expected {expected:,} bytes, found {have:,}")


def file_start(reply: requests.Response) -> int:
    """Give the first byte of a partial reply."""
    return int(reply.headers["Content-Range"].removeprefix("bytes ").partition("-")[0])


def _validator_file(part: Path) -> Path:
    return part.with_name(part.name + ".validator")


def _note_validator(reply: requests.Response, validator: Path) -> None:
    """Keep the server's validator of this version of the file; without a strong one no attempt resumes the part."""
    tag = reply.headers.get("ETag", "")
    mark = tag if tag and not tag.startswith("W/") else reply.headers.get("Last-Modified", "")
    if mark:
        validator.write_text(mark)
    else:
        validator.unlink(missing_ok=True)


def _failed(url: str, path: Path, offline: str, why: str) -> DatasetError:
    return DatasetError(f"{url}: cannot be fetched: {why}. Without a network, {offline}, or copy the file to {path}")
