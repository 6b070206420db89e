"""The folder of downloads and parsed matrices, and the local mirror beside it.

Every file appears whole or not at all (written beside its place, then renamed), so that many processes share one cache.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

import platformdirs
from filelock import FileLock, Timeout

from spmark.datasets.readers.npz import read_npz, write_npz
from spmark.datasets.source import Args, RawMatrix
from spmark.impls.core.errors import DatasetError, SpmarkError
from spmark.impls.core.files import keep_latest, mark_used, path_component, whole
from spmark.impls.core.machine import positive_number

_LAYOUT = 2
"""Counts up when parsed matrices of older versions must no longer be read."""
_MOST, _MOST_GIB = "SPMARK_MAX_PARSED_GIB", 64.0
MIRROR = "set SPMARK_MIRROR to a folder with MANIFEST.tsv that holds the matrix"
"""What helps without a network, for matrices."""
_log = logging.getLogger(__name__)


class Cache:
    """Where downloads and parsed matrices are kept.

    Parameters
    ----------
    root : Path, optional
        Made at the first write; by default the user's cache folder.
    mirror : Path, optional
        A tree ``<category>/<name>.npz`` with ``MANIFEST.tsv``.
    """

    def __init__(self, root: Path | None = None, mirror: Path | None = None) -> None:
        self.root = root if root is not None else Path(platformdirs.user_cache_dir("spmark"))
        self.mirror = mirror

    @classmethod
    def default(cls) -> Cache:
        """Make the cache that the environment names: ``SPMARK_CACHE`` and ``SPMARK_MIRROR``, both folders."""
        root, mirror = os.environ.get("SPMARK_CACHE"), os.environ.get("SPMARK_MIRROR")
        return cls(Path(root) if root else None, Path(mirror) if mirror else None)

    def fetch(self, url: str, place: str, sha256: str | None = None, offline: str = MIRROR) -> Path:
        """Give a downloaded file; fetch the file where it is missing or damaged.

        Parameters
        ----------
        url : str
        place : str
            Path under ``root/downloads``.
        sha256 : str, optional
            Hex digest that the publisher states. Without it, the digest of the first download is kept beside the file
            and checked from then on.
        offline : str
            What a person can do without a network, for the message.

        Raises
        ------
        DatasetError
            The place leads out of the folder of downloads, the file cannot be fetched, or its digest is not the
            expected one.
        """
        import pooch

        parts = PurePosixPath(place).parts
        if not parts or parts[0] == "/" or ".." in parts or not place.isprintable():
            raise DatasetError(f"{url}: expected a place inside the cache's folder of downloads, found {place!r}")
        pooch.get_logger().setLevel(logging.WARNING)
        path = self.root / "downloads" / place
        note, part = path.with_name(path.name + ".sha256"), path.with_name(path.name + ".part")

        def resumed(address: str, whole_file: str, _: object) -> None:
            download(address, part)
            part.replace(whole_file)

        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(path.with_name(path.name + ".lock")):
                expected = sha256 or (note.read_text().strip() if note.exists() else None)
                pooch.retrieve(url, expected, path.name, path.parent, downloader=resumed)
                if expected is None:
                    with whole(note) as new:
                        new.write_text(file_digest(path) + "\n")
        except ValueError as error:
            replaced = f" (delete {note} if the publisher replaced the file)" if note.exists() and not sha256 else ""
            raise DatasetError(
                f"{url}: cannot be fetched: {error}{replaced}. Without a network, {offline}, or copy the file to {path}"
            ) from error
        except OSError as error:
            raise DatasetError(
                f"{path}: the cache cannot be used ({error.strerror}); make room, or name another folder with "
                "SPMARK_CACHE"
            ) from error
        return path

    def has(self, source: str, name: str, args: Args) -> bool:
        """Tell whether a matrix is kept, without reading it."""
        return self._parsed_path(source, name, args).exists()

    def parsed(self, source: str, name: str, args: Args) -> RawMatrix | None:
        """Give a matrix that was parsed or generated before, or None; that of a large file is mapped (`read_npz`).

        A damaged file is passed over with a warning: the caller makes the matrix again.
        """
        path = self._parsed_path(source, name, args)
        try:
            if not path.exists():
                return None
            mark_used(path)
            return read_npz(path)
        except SpmarkError as error:
            _log.warning("making %s/%s again, since its cached form is unusable: %s", source, name, error)
            return None

    @contextmanager
    def turn(self, source: str, name: str, args: Args) -> Iterator[bool]:
        """Let one process after the other make a matrix; gives whether another one had its turn meanwhile.

        Where the cache gives no locks, all go at once.
        """
        path = self._parsed_path(source, name, args)
        lock, waited = FileLock(path.with_name(path.name + ".lock")), False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                waited = True
                lock.acquire()
        except OSError as error:
            _log.warning("%s: no lock (%s): several processes may make %s/%s", path, error.strerror, source, name)
        try:
            yield waited
        finally:
            lock.release()

    def keep(self, source: str, name: str, args: Args, matrix: RawMatrix) -> None:
        """Store a parsed matrix; two processes may do so at once, and a full disk raises no error.

        Matrices that were used least recently go where all take more than ``SPMARK_MAX_PARSED_GIB``, by default 64.
        """
        most_bytes = int(positive_number(_MOST, _MOST_GIB, "GiB", DatasetError) * (1 << 30))
        try:
            with whole(self._parsed_path(source, name, args)) as part:
                write_npz(part, matrix)
            keep_latest(self.root / "parsed", most_bytes)
        except OSError as error:
            _log.warning("%s/%s is not kept in the cache at %s: %s", source, name, self.root, error)

    def first_pattern(self, origin: str, pattern: str) -> tuple[str, Path]:
        """Give the hash of a listed matrix that was first fetched here, and where it is kept; keeps it if it is new.

        The list of origins has no hash of such a matrix yet. A full disk raises no error.
        """
        path = self.root / "patterns" / f"{origin}.sha256"
        try:
            if path.exists():
                return path.read_text(encoding="ascii").strip(), path
            with whole(path) as new:
                new.write_text(pattern + "\n", encoding="ascii")
            _log.warning("%s: no hash of its pattern is listed; this machine keeps the first: %s", origin, pattern)
        except OSError as error:
            _log.warning("the pattern of %s is not kept in the cache at %s: %s", origin, self.root, error)
        return pattern, path

    def _parsed_path(self, source: str, name: str, args: Args) -> Path:
        readable = re.sub(r"[^A-Za-z0-9._@-]+", "_", name)[-80:]
        key = json.dumps([_LAYOUT, source, name, dict(args)], sort_keys=True)
        digest = hashlib.sha256(key.encode()).hexdigest()[:12]
        return self.root / "parsed" / path_component(source) / f"{readable}-{digest}.npz"


ATTEMPTS = 5
PAUSE_S = 0.5
"""Pause before the second attempt; each further pause is twice as long."""
_TIMEOUT_S = (10.0, 60.0)
_CHUNK_BYTES = 1 << 16
"""Most bytes that a drop costs: an incomplete chunk is not kept."""
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})


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


def stated_bytes(url: str) -> int | str:
    """Give the bytes that a server states for a file, or why they are not known."""
    import requests

    try:
        reply = requests.head(url, headers={"Accept-Encoding": "identity"}, allow_redirects=True, timeout=_TIMEOUT_S)
        reply.raise_for_status()
        return int(reply.headers["Content-Length"])
    except requests.RequestException as error:
        return str(_first_cause(error))
    except (KeyError, ValueError):
        return "its server states none"


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
