"""A headless Chromium that loads one page: what it drew, what it complained about and what it asked for."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_CONSOLE = re.compile(r":CONSOLE[:(].*")


@dataclass(frozen=True)
class Page:
    """A loaded page."""

    dom: str
    console: list[str]
    outside: list[str]
    """Addresses on other hosts that the page itself asked for; the browser's own errands are not the page's."""


def find() -> str:
    """Give the program, or skip."""
    found = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if found is None:
        pytest.skip(f"no headless browser: none of {', '.join(PROGRAMS)} is installed")
    return found


def load(program: str, origin: str, path: str) -> Page:
    """Load a page of a server on the loopback interface, with every other host unreachable."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        net_log = folder / "net.json"
        command = [
            program,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--no-first-run",
            f"--user-data-dir={folder / 'profile'}",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            "--enable-logging=stderr",
            f"--log-net-log={net_log}",
            "--virtual-time-budget=15000",
            "--window-size=1400,1000",
            "--dump-dom",
            origin + path,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        asked = _asked(net_log.read_text(encoding="utf-8"))
        assert any(url.startswith(origin) for url, _ in asked), f"the log does not name the page: {asked}"
        ours = [url for url, initiator in asked if initiator.startswith(origin)]
        outside = [url for url in ours if not url.startswith((origin, "data:", "blob:"))]
        return Page(done.stdout, _CONSOLE.findall(done.stderr), outside)


def _asked(log: str) -> list[tuple[str, str]]:
    """Give the address of every request, and the origin of the page that began it."""
    try:
        events = json.loads(log)["events"]
    except ValueError:  # the browser was ended while it wrote the last lines
        events = json.loads(log.rstrip().rstrip(",") + "]}")["events"]
    params = [event.get("params", {}) for event in events]
    return [(p["url"], str(p.get("initiator", ""))) for p in params if "url" in p]
