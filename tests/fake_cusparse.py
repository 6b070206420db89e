"""Libraries that answer like a cuSPARSE of some version, and one that wants a cuSPARSE as PyTorch and CuPy do."""

from __future__ import annotations

import subprocess
from pathlib import Path

SONAME = "libcusparse.so.12"
_SOURCE = """
extern "C" int cusparseGetProperty(int part, int* value) {{ const int all[] = {{ {} }}; *value = all[part]; return 0; }}
"""
_USER = """
extern "C" int cusparseGetProperty(int part, int* value);
extern "C" int ask(int part) { int value = -1; cusparseGetProperty(part, &value); return value; }
"""


def compiled(folder: Path, version: str) -> Path:
    """Compile a cuSPARSE of a version of three numbers into a folder."""
    return _shared(folder / SONAME, _SOURCE.format(version.replace(".", ", ")), f"-Wl,-soname,{SONAME}")


def installed(folder: Path, version: str) -> Path:
    """Put a cuSPARSE of a version of four numbers into a folder, as pip installs it."""
    (folder / f"nvidia_cusparse-{version}.dist-info").mkdir(parents=True)
    return compiled(folder / "nvidia" / "cu13" / "lib", version.rpartition(".")[0])


def user_of(library: Path, folder: Path) -> Path:
    """Compile a library that wants a cuSPARSE by its name and would find ``library`` by itself; ``ask`` asks it."""
    return _shared(folder / "libuser.so", _USER, str(library), f"-Wl,-rpath,{library.parent}")


def _shared(file: Path, source: str, *options: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    command = ["g++", "-shared", "-fPIC", "-x", "c++", "-", "-x", "none", *options, "-o", file]
    subprocess.run(command, input=source, text=True, check=True)
    return file.resolve()
