"""The downloader that `spmark.datasets.cache.Cache.fetch` gives to pooch: it goes on where an attempt stopped.

The part of an interrupted download stays (``.part``) with the server's validator beside it. A later attempt goes on
from the part only if the server confirms that the file is still the same (RFC 9110, If-Range).
"""

from __future__ import annotations

import hashlib
import logging
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

ATTEMPTS = 5
PAUSE_S = 0.5
"""Pause before the second attempt; each further pause is twice as long."""
_TIMEOUT_S = (10.0, 60.0)
_CHUNK_BYTES = 1 << 16
"""Most bytes that a drop costs: an incomplete chunk is not kept."""
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_log = logging.getLogger(__name__)


def file_digest(path: Path) -> str:
    """Give the SHA-256 of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download(url: str, part: Path) -> None:
    """Fetch ``url`` to ``part``, whose folder exists; go on from the bytes that are there. The caller holds a lock.

    Raises
    ------
    ValueError
        Says why the file cannot be fetched; what came of it stays.
    OSError
        The part cannot be written.
    """
    import requests  # a tenth of a second, which no command pays that downloads nothing

    last = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            _log.warning("%s: attempt %d of %d after: %s", url, attempt + 1, ATTEMPTS, last)
            time.sleep(PAUSE_S * 2 ** (attempt - 1))
        try:
            return _attempt(url, part)
        except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError) as error:
            cause = _first_cause(error)
            if isinstance(cause, socket.gaierror):  # another attempt would find no network either
                raise ValueError(f"the name {urlsplit(url).hostname} cannot be resolved ({cause.strerror})") from error
            last = str(cause)
        except requests.RequestException as error:
            raise ValueError(str(error)) from error
    raise ValueError(f"{ATTEMPTS} attempts failed, the last with: {last}")


def _first_cause(error: BaseException) -> BaseException:
    """Give the first cause of an error of `requests`: the errors around it repeat the address, at length."""
    wrapped = error.args[0] if error.args else None
    cause = getattr(wrapped, "reason", None) or error.__cause__ or error.__context__
    return _first_cause(cause) if isinstance(cause, BaseException) else error


def _attempt(url: str, part: Path) -> None:
    import requests

    validator = part.with_name(part.name + ".validator")
    mark = validator.read_text() if validator.exists() else ""
    have = part.stat().st_size if mark and part.exists() else 0
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-", "If-Range": mark} if have else {})
    with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT_S) as reply:
        resumed, place = reply.status_code == requests.codes.partial_content, reply.headers.get("Content-Range", "")
        unsatisfiable = reply.status_code == requests.codes.requested_range_not_satisfiable
        if unsatisfiable or (resumed and not place.startswith(f"bytes {have}-")):
            part.unlink(missing_ok=True)
            raise requests.ConnectionError(f"expected a range from byte {have:,}, found {place or 'none'}")
        if reply.status_code in _PASSING:
            raise requests.ConnectionError(f"HTTP {reply.status_code} {reply.reason}")
        reply.raise_for_status()
        # A weak tag does not say that every byte is the same; without a validator no attempt goes on from the part.
        tag = reply.headers.get("ETag", "W/")
        validator.write_text(reply.headers.get("Last-Modified", "") if tag.startswith("W/") else tag)
        with part.open("ab" if resumed else "wb") as file:
            for chunk in reply.iter_content(_CHUNK_BYTES):
                file.write(chunk)
        expected = (have if resumed else 0) + int(reply.headers.get("Content-Length", 0))
        if "Content-Length" in reply.headers and part.stat().st_size != expected:
            raise requests.ConnectionError(f"expected {expected:,} bytes, found {part.stat().st_size:,}")
    validator.unlink()
