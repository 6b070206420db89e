"""The page of compositions: one file, nothing outside, its numbers inside, and small."""

from __future__ import annotations

import base64
import re
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from browser import browser, needs_chromium
from problems import random_csr

from spmark.impls.core.errors import RecordError
from spmark.impls.core.stores import Held, StoreKind, Stores
from spmark.report.site.composition import MOST_PICTURES, Picture, chosen_pictures, composition_report
from spmark.report.site.files import write_page
from spmark.report.site.model import Section

MATRIX = random_csr(600, 600, [60] * 600)
RANKING = pd.DataFrame({"implementation": ["<a>", "b"], "time_us": [1.5, np.nan], "how": ["not measured", "rule"]})


def scattered(name: str) -> Picture:
    """Give a picture of ten stores without order: nothing is larger."""
    order = np.random.default_rng(0).permutation(MATRIX.nnz)
    cuts = np.linspace(0, MATRIX.nnz, 11).astype(int)
    held = [
        Held(StoreKind.BUCKET, f"bucket of {2**power}", stop - start, order[start:stop])
        for power, (start, stop) in enumerate(pairwise(cuts))
    ]
    return Picture(name, Stores.of(MATRIX.nnz, held), "not measured: of a test.")


def rows(name: str) -> Picture:
    held = [Held(StoreKind.ROW, "rows of CSR", MATRIX.nnz, np.arange(MATRIX.nnz))]
    return Picture(name, Stores.of(MATRIX.nnz, held), "measured.")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    section = Section("some-gpu", "", [("A", "600 x 600")], ["Nothing was measured."], [])
    pictures = [scattered(f"system{number}") for number in range(MOST_PICTURES)]
    report = composition_report("a <title>", section, RANKING, pictures, MATRIX)
    return write_page(report, tmp_path_factory.mktemp("page") / "deep" / "page.html")


@pytest.mark.full
def test_a_page_is_one_small_file_without_requests(page):
    text = page.read_text()
    assert page.stat().st_size < 1_000_000
    assert len(text.split("<figure ")) == MOST_PICTURES + 1
    links = re.findall(r'(?:href|src|srcset)="([^"]*)"', text)
    assert [link for link in links if not link.startswith(("data:", "#"))] == []
    assert "a &lt;title&gt;" in text
    assert "&lt;a&gt;" in text
    assert "prefers-color-scheme: dark" in text


def test_a_page_holds_the_numbers_of_its_pictures(page):
    saved = dict(re.findall(r'download="([^"]+)" href="data:text/csv;base64,([^"]+)"', page.read_text()))
    assert set(saved) == {"ranking.csv", *(f"composition-system{n}.csv" for n in range(MOST_PICTURES))}
    lines = base64.b64decode(saved["composition-system0.csv"]).decode().splitlines()
    assert lines[0].split(",")[:3] == ["kind", "store", "nnz"]
    assert sum(int(line.split(",")[2]) for line in lines[1:]) == MATRIX.nnz


def test_few_are_drawn_and_csr_once():
    names = [*(rows(name) for name in "ab"), *(scattered(str(number)) for number in range(MOST_PICTURES))]
    shown, left = chosen_pictures(names)
    assert [picture.name for picture in shown] == ["a", *map(str, range(MOST_PICTURES - 1))]
    assert [picture.name for picture in left] == ["b", str(MOST_PICTURES - 1)]


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    report = composition_report("t", Section("d", "", [], [], []), RANKING.iloc[:0], [], MATRIX)
    with pytest.raises(RecordError, match=r"the report cannot be written: .*; name another place"):
        write_page(report, tmp_path / "file" / "page.html")


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_it_without_errors_or_requests(page, scheme, tmp_path):
    with browser(tmp_path) as opened:
        opened.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        opened.open(page)
        assert opened.errors() == []
        assert opened.requests() == [page.as_uri()]
        drawn = opened.script("[...document.images].map(image => image.complete && image.naturalWidth > 100)")
        assert drawn == [True] * MOST_PICTURES
        back = opened.script("getComputedStyle(document.body).backgroundColor")
        assert back == {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 24, 29)"}[scheme]
