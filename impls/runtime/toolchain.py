"""Where the CUDA compilers and headers are: NVRTC through CuPy, nvcc and ptxas on the path, in a toolkit or wheels."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from spmark.impls.core.errors import DeviceError, how_to_install

INCLUDE = Path(__file__).parent / "include"
"""Our own device headers, included as ``<spmark/...>``."""


@cache
def cuda_include() -> Path | None:
    """Give the folder of ``cuda_fp16.h``, or None where no toolkit and no wheel has it."""
    folders = (root / "include" for root in _roots())
    return next((folder for folder in folders if (folder / "cuda_fp16.h").is_file()), None)


@cache
def tool(name: str) -> Path:
    """Find ``nvcc``, ``ptxas`` or another program of the toolkit.

    Raises
    ------
    DeviceError
        The program is nowhere; the message says what to install.
    """
    for found in (shutil.which(name), *(shutil.which(root / "bin" / name) for root in _roots())):
        if found is not None:
            return Path(found)
    raise DeviceError(
        f"expected {name} on the path, under CUDA_PATH or in the nvidia-cuda-nvcc wheel, found it nowhere: "
        f"install a CUDA toolkit, or {how_to_install('nvcc')}"
    )


@cache
def nvcc_version() -> str:
    """Give nvcc's release line."""
    said = subprocess.run([tool("nvcc"), "--version"], capture_output=True, text=True, check=True).stdout
    return said.strip().splitlines()[-1]


def _roots() -> list[Path]:
    """Toolkit folders, wheels first: they match the NVRTC that CuPy loads."""
    spec = find_spec("nvidia")
    roots: list[Path] = []
    for folder in map(Path, (spec and spec.submodule_search_locations) or ()):
        roots += sorted(folder.glob("cu1[0-9]"), reverse=True) + sorted(folder.glob("cuda_*"))
    by_variable = (os.environ.get(variable) for variable in ("CUDA_PATH", "CUDA_HOME"))
    return [*roots, *(Path(root) for root in by_variable if root), Path("/usr/local/cuda")]
