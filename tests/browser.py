"""Headless Chromium over its debugging pipe, by the standard library alone: open a page, run script, see errors.

It reaches this machine only: whatever else a page asks for fails, and is among its requests.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

INSTALLED = Path(sys.prefix, "browser", "chromium")
"""Where ``make browser`` puts the one that runs on any Linux; before it, nothing but the machine's own is there."""
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    "--headless", "--no-sandbox", "--no-zygote", "--disable-gpu", "--disable-dev-shm-usage",
    "--disable-background-networking", "--no-first-run", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
)  # fmt: skip


@cache
def chromium() -> str | None:
    """Give the path of a browser that starts, or None: Ubuntu's package is a program that says to install another."""
    return next((path for path in (str(INSTALLED), *map(shutil.which, NAMES)) if path and _starts(path)), None)


def _starts(path: str) -> bool:
    try:
        return subprocess.run([path, "--version"], capture_output=True, timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


needs_chromium = pytest.mark.skipif(
    chromium() is None, reason="no Chromium starts here: make browser installs one (Linux on x86_64, npm's registry)"
)


@dataclass
class Page:
    """One open page."""

    to_browser: int
    from_browser: int
    session: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    sent: int = 0
    rest: bytes = b""

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; what happens meanwhile is kept in ``events``."""
        self.sent += 1
        message = {"id": self.sent, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to_browser, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read(30)
            if answer is None:
                raise TimeoutError(f"expected an answer to {method}, found none within 30 s")
            if answer.get("id") == self.sent:
                assert "error" not in answer, answer
                return answer.get("result", {})
            self.events.append(answer)

    def read(self, seconds: float) -> dict[str, Any] | None:
        end = time.monotonic() + seconds
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.from_browser], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                return None
            data = os.read(self.from_browser, 1 << 20)
            if not data:
                raise EOFError("the browser is gone")
            self.rest += data
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def open(self, page: Path | str) -> None:
        """Load a file or an address and wait for it."""
        # From elsewhere: an address that differs behind its # only would not be loaded.
        for url in ("about:blank", page.resolve().as_uri() if isinstance(page, Path) else page):
            self.events.clear()
            self.call("Page.navigate", url=url)
            end = time.monotonic() + 60
            while not any(event["method"] == "Page.loadEventFired" for event in self.events):
                event = self.read(max(0.0, end - time.monotonic()))
                assert event is not None, f"{url} did not load within 60 s"
                self.events.append(event)

    def wait(self, expression: str, seconds: float = 30) -> None:
        """Wait until an expression holds, and then for what the page still does."""
        end = time.monotonic() + seconds
        while not self.script(f"Boolean({expression})"):
            assert time.monotonic() < end, f"not within {seconds} s: {expression}; errors: {self.errors()}"
            time.sleep(0.1)
        while (event := self.read(0.3)) is not None and time.monotonic() < end:
            self.events.append(event)

    def script(self, expression: str) -> Any:
        """Evaluate an expression in the page."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def errors(self) -> list[dict[str, Any]]:
        """Give what the console showed: exceptions, errors and warnings."""
        loud = ("error", "warning", "assert")
        return [
            event
            for event in self.events
            if event["method"] == "Runtime.exceptionThrown"
            or (event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] in loud)
            or (event["method"] == "Runtime.consoleAPICalled" and event["params"]["type"] in loud)
        ]

    def requests(self) -> list[str]:
        """Give the addresses that were asked for, data URLs aside."""
        sent = [event for event in self.events if event["method"] == "Network.requestWillBeSent"]
        urls = [event["params"]["request"]["url"] for event in sent]
        return [url for url in urls if not url.startswith("data:")]


@contextmanager
def browser(profile: Path, width: int = 1200) -> Iterator[Page]:
    """Start the browser with an empty profile, and end it."""
    ours_in, theirs_out = os.pipe()
    theirs_in, ours_out = os.pipe()

    def wire() -> None:
        # The pipe is expected at 3 and 4; high copies first, since 3 and 4 may be in use.
        high_in, high_out = os.dup2(theirs_in, 103), os.dup2(theirs_out, 104)
        os.dup2(high_in, 3)
        os.dup2(high_out, 4)

    command = [chromium() or "", *_FLAGS, f"--user-data-dir={profile}", f"--window-size={width},900", "about:blank"]
    process = subprocess.Popen(
        command, preexec_fn=wire,  # noqa: PLW1509 (no thread here)
        pass_fds=(3, 4), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs_in)
    os.close(theirs_out)
    page = Page(ours_out, ours_in)
    try:
        target = page.call("Target.createTarget", url="about:blank")["targetId"]
        page.session = page.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        yield page
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(ours_in)
        os.close(ours_out)
