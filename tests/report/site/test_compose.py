"""The landing page: what stands on it, and in which order."""

from __future__ import annotations

import pytest

from spmark.report.site.model import ListedSweep
from spmark.report.site.site import write_report


@pytest.mark.full
def test_the_landing_page_shows_its_tables_before_the_sweeps_and_packaged_sweeps_first(records, tmp_path):
    rows = records.sweep(widths=(32,), samples=8)
    folders = [records.write_records(tmp_path, rows, sweep_name=name) for name in ("aa", "mine")]
    listed = {"mine": ListedSweep("Mine", "What `spmark run mine` measures.", {})}
    index = write_report(folders, tmp_path / "out", listed=listed.get).index
    text = index.read_text()
    assert "<h1>Sparse kernels on test-gpu: 2 sweeps</h1>" in text
    in_order = [
        "The systems</h3>",
        "Which implementation is fastest</h3>",
        '<h2 id="sweeps">Sweeps</h2>',
        ">Mine<",
        ">aa<",
    ]
    places = [text.index(part) for part in in_order]
    assert places == sorted(places)
    assert '<a href="#sweeps">' in text[: places[0]]
    assert "cusparse_best (the fastest of cusparse&#39;s algorithms in the same run)" in text
    assert (
        "What <code>spmark run mine</code> measures." in (index.parent / "sweeps" / "mine" / "index.html").read_text()
    )
