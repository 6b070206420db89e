"""Changes to a published site of airspeed velocity: local scripts instead of remote ones, a page and its link."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spmark.impls.core.baseline import BASELINES
from spmark.impls.core.errors import DatasetError, RecordError
from spmark.report.records import load_records
from spmark.report.site.compose import compose
from spmark.report.site.site import write_site


@dataclass(frozen=True)
class Package:
    """A package of the npm registry, and the files that the site needs."""

    name: str
    """``name@version``, as npm takes it."""
    sha512: str
    """SHA-512 of the tarball in base64: the integrity that the registry states."""
    files: Mapping[str, str]
    """Path in the tarball to path in the site's ``vendor``."""

    @property
    def tarball(self) -> str:
        """File name that ``npm pack`` gives it."""
        return self.name.replace("@", "-") + ".tgz"


PACKAGES = (
    Package(
        "jquery@3.3.1",
        "Ubldcmxp5np52/ENotGxlLe6aGMvmF4R8S6tZjsP6Knsaxd/xp3Zrh50cG93lR6nPXyUFwzN3ZSOQI0wRJNdGg==",
        {"package/dist/jquery.min.js": "jquery.min.js"},
    ),
    Package(
        "flot@0.8.3",
        "xg2otcTJDvS+ERK+my4wxG/ASq90QURXtoM4LhacCq0jQW2jbyjdttbRNqU2cPykrpMvJ6b2uSp6SAgYAzj9tQ==",
        {
            "package/jquery.flot.js": "jquery.flot.js",
            "package/jquery.flot.time.js": "jquery.flot.time.js",
            "package/jquery.flot.selection.js": "jquery.flot.selection.js",
            "package/jquery.flot.categories.js": "jquery.flot.categories.js",
        },
    ),
    Package(
        "flot-orderbars@1.0.0",
        "Jv51fvzevUjNXEeozpwEKfPjhiZhfiJddv0WHjduUTCmSF+7T5K7C9c9Y1wIVmUhDBv5fLMjgbwKecT0GIKPZA==",
        {"package/js/jquery.flot.orderBars.js": "jquery.flot.orderBars.js"},
    ),
    Package(
        "stupid-table-plugin@1.1.3",
        "2Vk7XouQPxUQPRe9w0Fu7ZZ8kHLK7rDoLMsCgtKxRNJ7f4dSOGvW9CkHsq5wD6QsaEnWoyLBYH3xOEsrK3yWBg==",
        {"package/stupidtable.min.js": "stupidtable.min.js"},
    ),
    Package(
        "blueimp-md5@2.19.0",
        "DRQrD6gJyy8FbiE4s+bDoXS9hiW3Vbx5uCdwvcCf3zLHL+Iv7LtGHLpr+GZV8rHG8tK766FGYBwRbu8pELTt+w==",
        {"package/js/md5.min.js": "md5.min.js"},
    ),
    Package(
        "bootstrap@3.1.1",
        "TAzqS8E/ISpVHP29gYhy+1NSV+FJwApDVQhDfgLYsIuUDJiqJzH2DfORN5tiu+Ie2iBLrzEG34t4Rf465cigqg==",
        {
            "package/dist/js/bootstrap.min.js": "js/bootstrap.min.js",
            "package/dist/css/bootstrap.min.css": "css/bootstrap.min.css",
            "package/dist/fonts/glyphicons-halflings-regular.eot": "fonts/glyphicons-halflings-regular.eot",
            "package/dist/fonts/glyphicons-halflings-regular.svg": "fonts/glyphicons-halflings-regular.svg",
            "package/dist/fonts/glyphicons-halflings-regular.ttf": "fonts/glyphicons-halflings-regular.ttf",
            "package/dist/fonts/glyphicons-halflings-regular.woff": "fonts/glyphicons-halflings-regular.woff",
        },
    ),
)
_REMOTE = {
    "jquery-3.3.1.min.js": "jquery.min.js",
    "jquery.flot.min.js": "jquery.flot.js",
    "jquery.flot.time.min.js": "jquery.flot.time.js",
    "jquery.flot.selection.min.js": "jquery.flot.selection.js",
    "jquery.flot.categories.min.js": "jquery.flot.categories.js",
    "jquery.flot.orderBars.js": "jquery.flot.orderBars.js",
    "stupidtable.min.js": "stupidtable.min.js",
    "md5.min.js": "md5.min.js",
    "bootstrap.min.js": "js/bootstrap.min.js",
    "bootstrap.min.css": "css/bootstrap.min.css",
}
"""Last part of a remote address to the file in ``vendor``."""
_LONE = {
    "var plot = $.plot(": (
        "if (!data.length) { plot_div.text('no values yet'); return; }\n"
        "                if (data.length < 2) { options.yaxis.max = 2 * data[0][1] || 1; }\n"
        "                var plot = $.plot("
    ),
    "[{data: data}]": "[{data: data, points: {show: data.length < 2, radius: 4, fill: 1}}]",
}
"""What the script of the grid has, and what takes its place."""
_ELEMENT = re.compile(r"<(?:script|link)\b[^>]*?(?:src|href)=\"(https://[^\"]+/([^\"/]+))\"[^>]*>")


def vendor(html: Path, tarballs: Path) -> None:
    """Copy scripts and styles into ``html/vendor`` and point ``index.html`` at them.

    Parameters
    ----------
    html : Path
        The published site.
    tarballs : Path
        Folder of npm tarballs; what is missing there is fetched by ``npm pack``.

    Raises
    ------
    DatasetError
        A tarball is missing and cannot be fetched, or is not the one that was published; or the site asks for a file
        that is not known here.
    """
    fetch_missing(tarballs)
    for package in PACKAGES:
        _unpack(package, tarballs / package.tarball, html / "vendor")
    index = html / "index.html"
    text = _ELEMENT.sub(_local, index.read_text(encoding="utf-8"))
    index.write_text(text, encoding="utf-8")


def add_link(html: Path, target: str, label: str) -> None:
    """Add an entry to the navigation of ``index.html``, which lists its own pages only."""
    index = html / "index.html"
    text = index.read_text(encoding="utf-8")
    entry = re.compile(r"(<li id=\"nav-li-regressions\">.*?</li>)", re.DOTALL)
    text, replaced = entry.subn(rf'\1\n    <li><a href="{target}">{label}</a></li>', text, count=1)
    if not replaced:
        raise DatasetError(
            f"{index}: expected a navigation entry nav-li-regressions to add {label!r} after, found none"
        )
    index.write_text(text, encoding="utf-8")


def draw_lone_values(html: Path) -> None:
    """Let the grid draw a benchmark with values of one commit as a point, and say where a benchmark has none.

    A line needs two commits, so that airspeed velocity leaves both empty.

    Raises
    ------
    DatasetError
        The grid's script is not the one that is known.
    """
    script = html / "summarygrid.js"
    text = script.read_text(encoding="utf-8")
    for drawn, instead in _LONE.items():
        if text.count(drawn) != 1:
            found = f"found it {text.count(drawn)} times"
            raise DatasetError(f"{script}: expected {drawn!r} once, {found}: take asv 0.6.6")
        text = text.replace(drawn, instead)
    script.write_text(text, encoding="utf-8")


def add_speedups(results: Path, html: Path) -> bool:
    """Write the report of all result files into ``html/speedups``; False where they hold no case."""
    try:
        frame = load_records([results])
    except RecordError:
        return False
    if frame.empty:
        return False
    chosen = {
        device: next((name for name in BASELINES.values() if name in set(part["implementation"])), "")
        for device, part in frame.groupby("device")
    }
    frame = frame.assign(baseline_implementation=frame["device"].map(chosen))
    write_site(compose(frame, title="Speed-ups by the newest results"), html / "speedups")
    return True


def fetch_missing(tarballs: Path) -> None:
    """Fetch the tarballs that a folder lacks by ``npm pack``.

    Raises
    ------
    DatasetError
        There is no npm, or npm reaches no registry; the message says the command for a machine with a network.
    """
    missing = [package for package in PACKAGES if not (tarballs / package.tarball).is_file()]
    if not missing:
        return
    names = " ".join(package.name for package in missing)
    advice = f"run `npm pack --pack-destination {tarballs} {names}` where there is a network"
    npm = shutil.which("npm")
    if npm is None:
        raise DatasetError(f"{tarballs}: expected {len(missing)} npm tarballs, found no npm to fetch them: {advice}")
    tarballs.mkdir(parents=True, exist_ok=True)
    command = [npm, "pack", "--silent", "--pack-destination", str(tarballs), *(package.name for package in missing)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.SubprocessError) as error:
        raise DatasetError(f"{tarballs}: the npm registry was not reached ({error}): {advice}") from error


def _local(match: re.Match[str]) -> str:
    element, address, name = match[0], match[1], match[2]
    if "<link" in element and "stylesheet" not in element:
        return element
    if name not in _REMOTE:
        raise DatasetError(f"index.html: expected scripts out of {', '.join(_REMOTE)}, found {address}")
    local = element.replace(address, f"vendor/{_REMOTE[name]}")
    return re.sub(r"\s(?:integrity|crossorigin|referrerpolicy)=\"[^\"]*\"", "", local)


def _unpack(package: Package, tarball: Path, target: Path) -> None:
    digest = base64.b64encode(hashlib.sha512(tarball.read_bytes()).digest()).decode()
    if digest != package.sha512:
        raise DatasetError(
            f"{tarball}: expected {package.name} with sha512-{package.sha512}, found sha512-{digest}: delete the file"
        )
    with tarfile.open(tarball, "r:gz") as archive:
        for inside, outside in package.files.items():
            file = archive.extractfile(inside)
            if file is None:
                raise DatasetError(f"{tarball}: expected a file {inside}, found something else")
            place = target / outside
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(file.read())
