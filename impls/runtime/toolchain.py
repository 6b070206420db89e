"""Where the CUDA compilers and headers are: NVRTC through CuPy, nvcc and ptxas on the path, in a toolkit or wheels."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from spmark.impls.core.errors import DeviceError
from spmark.impls.core.extras import how_to_install

INCLUDE = Path(__file__).parent / "include"
"""Our own device headers, included as ``<spmark/...>``."""


@cache
def cuda_include() -> Path | None:
    """Give the folder of ``cuda_fp16.h``, or None where no toolkit and no wheel has it."""
    for root in _roots():
        if (root / "include" / "cuda_fp16.h").is_file():
            return root / "include"
    return None


@cache
def tool(name: str) -> Path:
    """Find ``nvcc``, ``ptxas`` or another program of the toolkit.

    Raises
    ------
    DeviceError
        The program is nowhere; the message says what to install.
    """
    on_path = shutil.which(name)
    if on_path:
        return Path(on_path)
    for root in _roots():
        path = root / "bin" / name
        if os.access(path, os.X_OK):
            return path
    raise DeviceError(
        f"expected {name} on the path, under CUDA_PATH or in the nvidia-cuda-nvcc wheel, found it nowhere: "
        f"install a CUDA toolkit, or {how_to_install('dev')}"
    )


@cache
def nvcc_version() -> str:
    """Give nvcc's release line."""
    said = subprocess.run([tool("nvcc"), "--version"], capture_output=True, text=True, check=True).stdout
    return said.strip().splitlines()[-1]


def _roots() -> list[Path]:
    """Toolkit folders, wheels first: they match the NVRTC that CuPy loads."""
    roots: list[Path] = []
    try:
        import nvidia
    except ImportError:
        pass
    else:
        for folder in nvidia.__path__:
            roots += sorted(Path(folder).glob("cu1[0-9]"), reverse=True) + sorted(Path(folder).glob("cuda_*"))
    for variable in ("CUDA_PATH", "CUDA_HOME"):
        if os.environ.get(variable):
            roots.append(Path(os.environ[variable]))
    return [*roots, Path("/usr/local/cuda")]
