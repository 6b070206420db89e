"""A loopback file server that can misbehave."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FileServer:
    """Serves `files` by path, with ranges; `statuses` and `drop_after` are used up, one a request.

    Each request waits `pause_s`; `redirects` says where a path has moved to.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.statuses: list[int] = []
        self.drop_after: list[int] = []
        self.ignore_ranges = False
        self.redirects: dict[str, str] = {}
        self.pause_s = 0.0
        self.ranges: list[str] = []
        self.requests = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.answer(self)

            def do_HEAD(self):
                outer.state(self)

            def log_message(self, *args):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/"

    @staticmethod
    def tag(content: bytes) -> str:
        return f'"{hashlib.md5(content).hexdigest()}"'

    def state(self, handler) -> None:
        """Answer HEAD, which does not count as a request for a file."""
        content = self.files.get(handler.path)
        handler.send_response(404 if content is None else 200)
        handler.send_header("Content-Length", str(len(content or b"")))
        handler.end_headers()

    def answer(self, handler) -> None:
        self.requests += 1
        if self.statuses:
            handler.send_error(self.statuses.pop(0))
            return
        time.sleep(self.pause_s)
        if (to := self.redirects.get(handler.path)) is not None:
            handler.send_response(302)
            handler.send_header("Location", to)
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        content = self.files.get(handler.path)
        if content is None:
            handler.send_error(404)
            return
        start, wanted = 0, handler.headers.get("Range")
        if wanted:
            self.ranges.append(wanted)
            if not self.ignore_ranges and handler.headers.get("If-Range") == self.tag(content):
                start = int(wanted.removeprefix("bytes=").rstrip("-"))
        if start > len(content):
            handler.send_error(416)
            return
        handler.send_response(206 if start else 200)
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        handler.send_header("ETag", self.tag(content))
        handler.send_header("Content-Length", str(len(content) - start))
        handler.end_headers()
        stop = start + self.drop_after.pop(0) if self.drop_after else len(content)
        handler.wfile.write(content[start:stop])


@contextmanager
def serving() -> Iterator[FileServer]:
    """Serve until the block ends."""
    files = FileServer()
    thread = threading.Thread(target=files.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield files
    files.http.shutdown()
    files.http.server_close()
    thread.join()
