"""Draw README's picture of a site anew: the first figure of the page that published records give.

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
RECORDS = "report/reference/h200/liteform_fig6_speedup"
PICTURE = ROOT / "docs/images/site.png"
SIZE = (1200, 512)


def main() -> None:
    """Draw the site, open the page of its sweep, and keep the first figure."""
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site"
        program = "from spmark.suite.cli import main; main()"
        subprocess.run([sys.executable, "-c", program, "report", RECORDS, "--out", site], cwd=ROOT, check=True)
        with browser(Path(folder) / "profile", SIZE[0]) as page:
            [sweep] = (site / "sweeps").iterdir()
            page.open(sweep / "index.html")
            view = {"width": SIZE[0], "height": SIZE[1], "deviceScaleFactor": 1, "mobile": False}
            page.call("Emulation.setDeviceMetricsOverride", **view)
            page.script("(document.querySelector('figure') ?? document.body).scrollIntoView()")
            taken = page.call("Page.captureScreenshot", format="png")
    PICTURE.write_bytes(base64.b64decode(taken["data"]))


if __name__ == "__main__":
    main()
