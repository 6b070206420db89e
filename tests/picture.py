"""Draw README's picture of a site anew: the systems and the winners on the first page of published records.

    python tests/picture.py

It needs the Chromium of ``make browser``.
"""

from __future__ import annotations

import base64
import subprocess
import sys
import tempfile
from pathlib import Path

from browser import browser

ROOT = Path(__file__).parents[1]
RECORDS = [f"report/reference/h200/{sweep}" for sweep in ("judging_graphs", "judging_layers", "dash_hyb_search")]
"""Matrices that no table, weight or forest was fitted to, with all five systems."""
PICTURE = ROOT / "docs/images/site.png"
SIZE = (1200, 600)


def main() -> None:
    """Draw the site, open its first page, and keep what begins with the table of systems."""
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site"
        program = "from spmark.suite.cli.main import main; main()"
        subprocess.run([sys.executable, "-c", program, "report", *RECORDS, "--out", site], cwd=ROOT, check=True)
        with browser(Path(folder) / "profile", SIZE[0]) as page:
            page.open(site / "index.html")
            view = {"width": SIZE[0], "height": SIZE[1], "deviceScaleFactor": 1, "mobile": False}
            page.call("Emulation.setDeviceMetricsOverride", **view)
            page.script("document.querySelector('section h3').scrollIntoView()")
            taken = page.call("Page.captureScreenshot", format="png")
    PICTURE.write_bytes(base64.b64decode(taken["data"]))


if __name__ == "__main__":
    main()
