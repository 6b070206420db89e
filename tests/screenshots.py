"""Take pictures of every page of a site at the widths of a screen and a telephone, light and dark.

``python tests/screenshots.py SITE OUT`` drives the Chromium of ``make browser`` and writes
``OUT/PAGE-WIDTH-SCHEME.png``; a tall page goes on in ``OUT/PAGE-WIDTH-SCHEME-2.png`` and further files.
"""

from __future__ import annotations

import argparse
import base64
import tempfile
from collections.abc import Iterator
from pathlib import Path

from browser import Page, browser, chromium

WIDTHS = (1400, 400)
SCHEMES = ("light", "dark")
TALLEST = 6000
"""Pixels of one picture: a taller page takes several."""


def main() -> None:
    """Take the pictures of the site that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path, help="Folder of the pages.")
    parser.add_argument("out", type=Path, help="Folder of the pictures.")
    asked = parser.parse_args()
    if chromium() is None:
        raise SystemExit("expected a Chromium that starts, found none: make browser installs one")
    paths = sorted(asked.site.rglob("*.html"))
    if not paths:
        raise SystemExit(f"{asked.site}: expected the pages of a site, found none: make quickstart writes some")
    asked.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as profile, browser(Path(profile)) as page:
        for path in paths:
            name = "-".join(path.relative_to(asked.site).with_suffix("").parts)
            for width in WIDTHS:
                for told, data in pictures(page, path, width):
                    (asked.out / f"{name}-{width}-{told}.png").write_bytes(data)


def pictures(page: Page, path: Path, width: int) -> Iterator[tuple[str, bytes]]:
    """Give the whole page in each scheme as PNGs, from its top to its end, each with the end of its file's name."""
    size = {"width": width, "deviceScaleFactor": 1, "mobile": width < 600}
    page.call("Emulation.setDeviceMetricsOverride", height=900, **size)
    page.open(path)
    for scheme in SCHEMES:
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        height = page.script("document.documentElement.scrollHeight")
        for piece, top in enumerate(range(0, height, TALLEST), 1):
            clip = {"x": 0, "y": top, "width": width, "height": min(TALLEST, height - top), "scale": 1}
            taken = page.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
            yield scheme + (f"-{piece}" if piece > 1 else ""), base64.b64decode(taken["data"])


if __name__ == "__main__":
    main()
